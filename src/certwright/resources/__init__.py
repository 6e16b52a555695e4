"""NOUNS: what every field of every kind means, defaults to and forbids.

May import:   kit
Never holds:  rules that look at another object (they go to controllers); parsing of certificates (to pki)
Modules:      meta, conditions, kinds, errors, codec, certificate, request, issuer, order, challenge,
              core (Secret, Event, Namespace, …), crds (the CustomResourceDefinitions made from these)
"""
