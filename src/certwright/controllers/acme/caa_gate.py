"""Whether CAA records (RFC 8659) forbid an ACME issuer to issue, before a request is sent to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from certwright.controllers.acme.issuer_resolution import IssuerResolver
from certwright.controllers.acme.waits import Wait
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest

if TYPE_CHECKING:
    from certwright.controllers.acme.caa_check import CaaCheck


class CaaGate:
    """Looks the records up at `nameservers`; empty: the system's."""

    def __init__(self, issuers: KnownIssuers, resolver: IssuerResolver, nameservers: Sequence[str]) -> None:
        self._issuers = issuers
        self._resolver = resolver
        self._nameservers = tuple(nameservers)

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
        return "" if isinstance(resolved, Wait) else await self._check.problem(resolved, csr.dns_names)

    @cached_property
    def _check(self) -> CaaCheck:
        from certwright.controllers.acme import caa_check  # loads the library for DNS: 4 MB

        return caa_check.check_at(self._nameservers)
