"""X.509 certificates, declared in YAML and renewed for their lifetime.

The way of one certificate through the packages (docs/walk.md has it file by file):

1. `cli` reads YAML and sends it to the API server.
2. `kube/apiserver` defaults, validates and stores it; `kube/store` assigns a revision, notifies watchers.
3. `kube/client` mirrors it into a local cache, and `kube/runtime` queues its key.
4. `controllers` compare the actual with the desired state: a private key (`pki`), a CertificateRequest.
5. `issuers` sign the request; `controllers` store key and chain together in a Secret.
6. `kube/runtime` requeues the Certificate when it is due for renewal.

`resources` defines every field of our kinds; `kit` and `kube/util` hold general tools; `app` wires all of it.
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
