"""Certificate controller: the steps from a Certificate to its Secret, and from there to the next renewal.

May import:     what controllers may
Does not hold:  a step that imports another step: they communicate through the object

One reconciler runs all steps, in this order, over one snapshot, and writes the status once (renewal_info is
in `readiness.py`, revisions in `requests.py`):

| step         | wakes on                                         | writes                    | next      |
|--------------|--------------------------------------------------|---------------------------|-----------|
| contention   | Certificate, target Secret                       | Issuing=False and a wait  | trigger   |
| trigger      | Certificate, Secret, request, issuer, time       | Issuing=True              | keys      |
| keys         | Issuing=True, next-key Secret                    | next-key Secret, its name | requests  |
| requests     | next-key Secret, requests of the next revision   | CertificateRequest        | signing   |
| issuing      | request Ready, Failed or Denied                  | target Secret, revision   | readiness |
| secret_sync  | Certificate, target Secret, passwords            | target Secret             | –         |
| renewal_info | Certificate, target Secret, an answer, nextCheck | status.acme               | readiness |
| readiness    | Certificate, target Secret, time                 | Ready, dates, renewalTime | revisions |
| revisions    | Ready=True, requests                             | deletes old requests      | –         |

Between requests and issuing, `controllers/requests/signing.py` works on the CertificateRequest.
"""
