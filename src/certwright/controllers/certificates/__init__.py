"""MIND, certificates: the steps from a Certificate to its Secret, and from there to the next renewal.

May import:   what controllers may
Never holds:  a step that knows another step: they talk only through the object
Modules:      snapshot and facts (what is), wanted (what is wanted), renewals (and when), trust (in which CA),
              keystores and target (in which form), rules (the difference), ownership (who has set what),
              temporary (until the real one comes), backoff and waits (when to try again), draft (what
              shall be written), hands (how), adoption (Secrets that existed before), fights, trigger, keys,
              requests, issuing, upkeep, renewal_info, readiness, revisions (the steps), reconcile (which runs
              them)

One reconciler runs all steps, in this order, over one snapshot, and writes the status once:

| step         | wakes on                                         | writes                    | next      |
|--------------|--------------------------------------------------|---------------------------|-----------|
| fights       | Certificate, target Secret                       | Issuing=False and a wait  | trigger   |
| trigger      | Certificate, Secret, request, issuer, time       | Issuing=True              | keys      |
| keys         | Issuing=True, next-key Secret                    | next-key Secret, its name | requests  |
| requests     | next-key Secret, requests of the next revision   | CertificateRequest        | signing   |
| issuing      | request Ready, Failed or Denied                  | target Secret, revision   | readiness |
| upkeep       | Certificate, target Secret, passwords            | target Secret             | –         |
| renewal_info | Certificate, target Secret, an answer, nextCheck | status.acme               | readiness |
| readiness    | Certificate, target Secret, time                 | Ready, dates, renewalTime | revisions |
| revisions    | Ready=True, requests                             | deletes old requests      | –         |

Between requests and issuing lies `controllers/signing.py`, which works on the CertificateRequest.
"""
