"""Name of the TXT record of DNS-01."""

from __future__ import annotations

from certwright.acme.protocol.challenges import dns_name
from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.names import LookupFailed, NameServers


async def record_name(identifier: str, names: NameServers, *, follow: bool) -> str:
    """`_acme-challenge.<identifier>`; with `follow` the end of its chain of CNAME records, so that a zone can
    be delegated. Raises `SolverError`."""
    name = dns_name(identifier)
    if not follow:
        return name
    try:
        return await names.alias_of(name)
    except LookupFailed as error:
        raise SolverError(f"the CNAME record of {name} cannot be followed: {error}") from error


async def zone_of(name: str, names: NameServers) -> str:
    """The zone of a name. Raises `SolverError`."""
    try:
        return await names.zone_of(name)
    except LookupFailed as error:
        raise SolverError(f"the zone of {name} cannot be found: {error}") from error
