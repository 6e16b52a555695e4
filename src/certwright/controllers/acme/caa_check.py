"""Whether CAA records let an ACME server issue for a request, before a set sends the request there.

Loaded with the first request to a set that has an ACME member, because the DNS library takes megabytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from certwright.acme.protocol.errors import AcmeError
from certwright.acme.solvers.caa import Record, forbids, relevant_records
from certwright.acme.solvers.names import LookupFailed, NameServers
from certwright.controllers.acme.issuer_resolution import ResolvedIssuer
from certwright.kube.util.caches import Recent

_REMEMBERED_S: Final = 60.0
_TAKES_S: Final = 5.0
# Of more names than these, the others are left to the CA.
_MOST_NAMES: Final = 20


def check_at(servers: Sequence[str]) -> CaaCheck:
    """A check by these name servers, the operator's; none means the system's."""
    return CaaCheck(NameServers(servers, over_https=True))


class CaaCheck:
    """Looks records up at `servers`, and remembers them for a minute."""

    def __init__(self, servers: NameServers) -> None:
        self._servers = servers
        self._records: Recent[str, tuple[Record, ...]] = Recent(_REMEMBERED_S)

    async def problem(self, issuer: ResolvedIssuer, names: tuple[str, ...]) -> str:
        """Why the server must not issue for these DNS names, as the end of a sentence about it. Empty: it
        may, or that could not be found out."""
        try:
            async with asyncio.timeout(_TAKES_S):
                directory = await issuer.client.directory()
                identities = directory.caa_identities
                for name in names[:_MOST_NAMES] if identities else ():
                    records = await relevant_records(name.removeprefix("*."), self._records_of)
                    is_wildcard = name.startswith("*.")
                    if forbids(records, identities, is_wildcard=is_wildcard, account=issuer.client.kid):
                        return f"may not issue for {name} by its CAA records"
        except (AcmeError, LookupFailed, TimeoutError):
            # The CA looks itself; a failed lookup here excludes none.
            return ""
        return ""

    async def _records_of(self, name: str) -> tuple[Record, ...]:
        return await self._records.get(name.lower(), lambda: self._servers.caa(name))
