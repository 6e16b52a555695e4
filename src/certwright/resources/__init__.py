"""NOUNS: what every field of every kind means, defaults to and forbids.

May import:   kit
Never holds:  rules that look at another object (they go to controllers); parsing of certificates (to pki)
Modules:      meta, conditions, kinds, errors, docs (field texts), names and reasons (well-known words),
              causes (of failures), breaker (the record of a circuit breaker), references, issuer_ref,
              certificate, request, signing_request, issuer, solver, pod, order, challenge, core (Secret,
              Event, Namespace, …), micro_time, table (the kinds), codec, crds (the
              CustomResourceDefinitions made from the structs; crd_rules), manifests (files of YAML and
              JSON; yaml_reader, yaml_scalars, yaml_writer), naming (names, labels, annotations), validation
              (the entry to the rules: certificate_rules, request_rules, issuer_rules, solver_rules,
              order_rules, with checks and cron; certificate_warnings), operator_policy (what the operator's
              flags let objects do)
"""
