"""Self-check factory for every challenge type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from certwright.acme.protocol import challenges
from certwright.acme.solvers.contract import Check, CheckSettings
from certwright.acme.solvers.dns01.check import DnsCheck
from certwright.acme.solvers.http01_check import HttpCheck
from certwright.acme.solvers.names import NameServers
from certwright.acme.solvers.tlsalpn01_check import TlsCheck

NamesOf = Callable[[CheckSettings], NameServers]
"""Returns the name servers for a configuration. Callers with the same one share them, and so their cache of
zones."""


def make_check(settings: CheckSettings, names_of: NamesOf, now: Callable[[], datetime]) -> Check:
    """Create a self-check. Raises what `names_of` raises."""
    match settings.type:
        case challenges.HTTP_01:
            return HttpCheck(port=settings.port, names=names_of(settings) if settings.servers else None)
        case challenges.TLS_ALPN_01:
            return TlsCheck(port=settings.port, names=names_of(settings) if settings.servers else None)
        case _:
            return DnsCheck(names_of(settings), now, recursive_only=settings.recursive_only)
