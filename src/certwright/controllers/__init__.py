"""MIND: compares what is with what is wanted, and writes down the next step.

May import:   engine, issuers, acme, client, resources, pki, kit
Never holds:  HTTP, SQL (they go to client and store); time arithmetic on raw bytes (to pki); what is peculiar
              to one kind of issuer (to issuers)
Modules:      certificates/ (the steps of one certificate), approval, signing, certificate_requests, issuers,
              signing_requests (Kubernetes' own requests), dependents (who waits for which Secret), caches
              (the local copies and their indexes), secrets (the Secrets that matter, of very many), packings
              (how they take little memory), withheld (what is left out of those at rest), authorities (which
              CA an issuer signs with now), features (its gates), table (which names of --controllers stand
              for what), metrics (what is told of it all), manager (starts and stops it), wakings (whom the
              news of an object wakes), own_writes (whom they do not wake), known_issuers (looks issuers up),
              circuit (the breaker of an issuer; its parts are probing, tries, in_flight, waiting_list), gate
              (the breakers of all issuers), breakers (probes, and records them), recall (what the objects
              say of an external issuer after a start), replica and shards (which of several replicas works,
              on what), ours (which keys those are), belonging (what is held of the others'), beside (wires
              them)
"""
