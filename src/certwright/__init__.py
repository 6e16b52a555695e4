"""X.509 certificates, declared in YAML and renewed for ever.

The walk of one certificate, room by room (docs/walk.md has it file by file):

1. `cli` reads YAML and sends it to the API server.
2. `apiserver` defaults it, checks it and stores it; `store` gives it a revision and tells the watchers.
3. `client` reflects it into a local copy, and `engine` queues its key.
4. `controllers` compare what is with what is wanted: a next private key (`pki`), a CertificateRequest.
5. `issuers` sign the request; `controllers` put key and chain into a Secret together.
6. `engine` wakes the certificate again when it is time to renew.

`resources` says what every field means; `kit` holds tools; `app` wires all of it.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
