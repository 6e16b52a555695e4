"""Whether CAA records (RFC 8659) forbid an ACME issuer to issue, before a set sends a request to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from certwright.acme.protocol.errors import AcmeError
from certwright.acme.solvers import caa
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.issuer_resolution import IssuerResolver
from certwright.controllers.acme.waits import Wait
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.kube.util.caches import Recent
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest

if TYPE_CHECKING:
    from certwright.acme.solvers.names import NameServers

_REMEMBERED_S: Final = 60.0
_TAKES_S: Final = 5.0
# Of more names than these, the others are left to the CA.
_MOST_NAMES: Final = 20


class CaaGate:
    """Checks the CAA records of requests at `nameservers`, the operator's; empty: the system's. Records are
    remembered for a minute."""

    def __init__(self, issuers: KnownIssuers, resolver: IssuerResolver, nameservers: Sequence[str]) -> None:
        self._issuers = issuers
        self._resolver = resolver
        self._nameservers = tuple(nameservers)
        self._records: Recent[str, tuple[caa.Record, ...]] = Recent(_REMEMBERED_S)

    async def forbids(self, member: IssuerReference, request: CertificateRequest) -> str:
        """See `Forbids`: checks the CAA records of the request's names, if the member is an ACME issuer."""
        issuer = self._issuers.object_of(member, request.metadata.namespace)
        if issuer is None or issuer.spec.acme is None:
            return ""
        resolved = await self._resolver.find(member, request.metadata)
        try:
            csr = read_csr(request.spec.request)
        except PkiError:
            # Signing reports it.
            return ""
        return "" if isinstance(resolved, Wait) else await self._problem(resolved, csr.dns_names)

    async def _problem(self, issuer: ResolvedIssuer, names: tuple[str, ...]) -> str:
        from certwright.acme.solvers import names as dns  # loads the library for DNS: 4 MB

        try:
            async with asyncio.timeout(_TAKES_S):
                identities = (await issuer.client.directory()).caa_identities
                for name in names[:_MOST_NAMES] if identities else ():
                    records = await caa.relevant_records(name.removeprefix("*."), self._records_of)
                    is_wildcard, account = name.startswith("*."), issuer.client.kid
                    if caa.forbids(records, identities, is_wildcard=is_wildcard, account=account):
                        return f"may not issue for {name} by its CAA records"
        except (AcmeError, dns.LookupFailed, TimeoutError):
            # The CA looks itself; a failed lookup here excludes none.
            return ""
        return ""

    async def _records_of(self, name: str) -> tuple[caa.Record, ...]:
        return await self._records.get(name.lower(), lambda: self._servers.caa(name))

    @cached_property
    def _servers(self) -> NameServers:
        from certwright.acme.solvers.names import NameServers  # loads the library for DNS: 4 MB

        return NameServers(self._nameservers, over_https=True)
