"""TLS settings, with CAs, certificates and keys from memory."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager


class BadCredentials(ValueError):
    """A CA, certificate or key cannot be used. The text is one sentence without the key."""


def tls_context(
    *, ca_pem: bytes = b"", client_cert_pem: bytes = b"", client_key_pem: bytes = b"", insecure: bool = False
) -> ssl.SSLContext:
    """The TLS settings for a server whose certificate is issued by `ca_pem` (empty: one of the system's CAs;
    `insecure`: not verified). The client's key is passed to OpenSSL from memory.

    Raises `BadCredentials`.
    """
    try:
        context = ssl.create_default_context(cadata=ca_pem.decode("ascii") if ca_pem else None)
    except (ssl.SSLError, ValueError) as error:
        raise BadCredentials(f"the CA certificate cannot be read: {error}") from None
    # Python 3.13 requires extensions that the CAs of many clusters lack; Go's TLS does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client_cert_pem:
        load_pair(context, client_cert_pem + b"\n" + client_key_pem, "client certificate")
    return context


def load_pair(context: ssl.SSLContext, pem: bytes, what: str) -> None:
    """Use the certificate (`what`, for the error) and its key. Raises `BadCredentials`."""
    try:
        with _as_file(pem) as path:
            # Without a password function OpenSSL would ask for one on the terminal; with a wrong one it would
            # compute as many iterations as the key says.
            context.load_cert_chain(path, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadCredentials(f"the {what} and its key cannot be used: {error}") from None


def _no_password() -> bytes:
    raise BadCredentials("the key is encrypted; an unencrypted one is needed")


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """A temporary path of a file with `pem`, because OpenSSL only reads files."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with os.fdopen(os.memfd_create("client-certificate"), "wb") as file:
            file.write(pem)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        import tempfile  # with what it loads 3 ms, of every command

        with tempfile.NamedTemporaryFile() as named:  # mode 0600
            named.write(pem)
            named.flush()
            yield named.name
