"""Self-check of TLS-ALPN-01: connects as a CA does (RFC 8737 §3)."""

from __future__ import annotations

import asyncio

from cryptography import x509

from certwright.acme.protocol.challenges import ALPN_PROTOCOL, server_name
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.names import LookupFailed, NameServers
from certwright.acme.solvers.tlsalpn01 import EXTENSION, extension_value
from certwright.kube.util.encoding import in_brackets
from certwright.kube.util.insecure_tls import unverified_tls

_TIMEOUT_S = 10.0


class TlsCheck:
    """Self-check: connects as the CA does and checks the certificate. `names` None uses the system."""

    def __init__(self, *, port: int = 443, names: NameServers | None = None) -> None:
        self._port = port
        self._names = names

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        where = f"{in_brackets(task.identifier)}:{self._port}"
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                der = await self._certificate(task)
        except TimeoutError:
            return NotYet(f"{where} did not answer within {_TIMEOUT_S:g} s")
        except (OSError, LookupFailed) as error:
            return NotYet(f"no TLS connection with {ALPN_PROTOCOL} to {where}: {error}")
        if der is None:
            return NotYet(f"{where} does not speak {ALPN_PROTOCOL}: another server answers there")
        return Ready() if _proves(der, task) else NotYet(f"{where} shows another certificate than the proof")

    async def _certificate(self, task: Task) -> bytes | None:
        context = unverified_tls()
        context.set_alpn_protocols([ALPN_PROTOCOL])
        host = (await self._names.addresses(task.identifier))[0] if self._names else task.identifier
        name = server_name(task.identifier)
        _, writer = await asyncio.open_connection(host, self._port, ssl=context, server_hostname=name)
        try:
            session = writer.get_extra_info("ssl_object")
            if session.selected_alpn_protocol() != ALPN_PROTOCOL:
                return None
            der: bytes | None = session.getpeercert(binary_form=True)
            return der
        finally:
            # Without the exchange of close_notify: a server that takes no part would hold the connection.
            writer.transport.abort()


def _proves(der: bytes, task: Task) -> bool:
    try:
        extension = x509.load_der_x509_certificate(der).extensions.get_extension_for_oid(EXTENSION)
    except (ValueError, x509.ExtensionNotFound):
        return False
    value = extension.value
    return isinstance(value, x509.UnrecognizedExtension) and value.value == extension_value(task)
