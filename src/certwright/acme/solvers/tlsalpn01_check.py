"""Self-check of TLS-ALPN-01: connects as a CA does (RFC 8737 §3)."""

from __future__ import annotations

import asyncio
import ssl

from cryptography import x509

from certwright.acme.protocol.challenges import ALPN_PROTOCOL, server_name
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.names import LookupFailed, NameServers, Unreached, at_both_families
from certwright.acme.solvers.tlsalpn01 import EXTENSION, extension_value
from certwright.kube.util.connections import unverified_tls
from certwright.kube.util.encoding import in_brackets

_TIMEOUT_S = 10.0


class TlsCheck:
    """Self-check: connects as the CA does, at both address families, and checks the certificate. `names` None
    uses the operating system."""

    def __init__(self, *, port: int = 443, names: NameServers | None = None) -> None:
        self._port = port
        self._names = names

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        where = f"{in_brackets(task.identifier)}:{self._port}"
        try:
            return await at_both_families(
                self._names, task.identifier, lambda address: self._check_at(address, where, task)
            )
        except (OSError, LookupFailed) as error:
            return NotYet(f"no TLS connection with {ALPN_PROTOCOL} to {where}: {error}")

    async def _check_at(self, address: str, where: str, task: Task) -> Ready | NotYet:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                der = await self._certificate(address, task)
        except TimeoutError:
            return Unreached(f"{where} did not answer within {_TIMEOUT_S:g} s")
        except ssl.SSLError as error:
            return NotYet(f"no TLS connection with {ALPN_PROTOCOL} to {where}: {error}")
        except OSError as error:
            return Unreached(f"no TLS connection with {ALPN_PROTOCOL} to {where}: {error}")
        if der is None:
            return NotYet(f"{where} does not speak {ALPN_PROTOCOL}: another server answers there")
        return Ready() if _proves(der, task) else NotYet(f"{where} shows another certificate than the proof")

    async def _certificate(self, address: str, task: Task) -> bytes | None:
        context = unverified_tls()
        context.set_alpn_protocols([ALPN_PROTOCOL])
        name = server_name(task.identifier)
        _, writer = await asyncio.open_connection(address, self._port, ssl=context, server_hostname=name)
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
