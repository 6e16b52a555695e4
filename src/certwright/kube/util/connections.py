"""Settings of outgoing connections: TLS with CAs, certificates and keys from memory; the environment's proxy
(`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`)."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from urllib.parse import urlsplit


class BadCredentials(ValueError):
    """A CA, certificate or key cannot be used. The text is one sentence without the key."""


_LONGEST_HANDSHAKE = 32 * 1024
"""Bytes from the server. OpenSSL accepts chains of 100 kB, in which a server whose CA the author of an object
has named can put keys that take half a second to verify, in the event loop. Usual are 3 to 6 kB."""


class _Handshake(ssl.SSLObject):
    """A connection whose handshake has a limit in bytes."""

    incoming: ssl.MemoryBIO
    _received = 0

    def do_handshake(self) -> None:
        """See `SSLObject`. Raises `SSLError` beyond the limit."""
        self._received += self.incoming.pending
        if self._received > _LONGEST_HANDSHAKE:
            raise ssl.SSLError(1, f"the handshake has more than {_LONGEST_HANDSHAKE} bytes")
        super().do_handshake()


class _ClientContext(ssl.SSLContext):
    """A context whose connections are of `_Handshake`."""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        if isinstance(made, _Handshake):
            made.incoming = incoming
        return made


def tls_context(
    *, ca_pem: bytes = b"", client_cert_pem: bytes = b"", client_key_pem: bytes = b"", insecure: bool = False
) -> ssl.SSLContext:
    """The TLS settings for a server whose certificate is issued by `ca_pem` (empty: one of the system's CAs;
    `insecure`: not verified). The client's key is passed to OpenSSL from memory.

    Raises `BadCredentials`.
    """
    # Not `ssl.create_default_context`: from Python 3.13 it requires extensions that the CAs of many clusters
    # lack; Go's TLS does not.
    context = _ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslobject_class = _Handshake
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        if ca_pem:
            context.load_verify_locations(cadata=ca_pem.decode("ascii"))
        else:
            context.load_default_certs()
    except (ssl.SSLError, ValueError) as error:
        raise BadCredentials(f"the CA certificate cannot be read: {error}") from None
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


def unverified_tls() -> ssl.SSLContext:
    """A client context that accepts any certificate.

    Not derived from the default context: loading the system's CAs takes 45 ms, and this context never uses
    them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def proxy_for(url: str) -> str:
    """The URL of the proxy, empty for none; never a proxy for this machine itself. Takes 0.1 ms: cache the
    result.

    Raises `ValueError` for an invalid URL.
    """
    parts = urlsplit(url)
    if is_this_machine(parts.hostname or "") or not any(
        name.lower().endswith("_proxy") for name in os.environ
    ):
        return ""
    from urllib.request import getproxies_environment, proxy_bypass  # 9 ms, of every command

    return "" if proxy_bypass(parts.netloc) else getproxies_environment().get(parts.scheme, "")


def is_this_machine(host: str) -> bool:
    """Whether the name or address is one that only this machine reaches by it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
