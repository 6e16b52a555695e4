"""Probes of failing issuers, by their type; each costs the issuer's server nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.issuers import IssuerTools, SecretReader
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.issuers.table import PROBED, kind_of
from certwright.kube.api.meta import ObjectKey
from certwright.resources.references import reference_to


class Probes:
    """Probes an issuer by its key (without a namespace: a ClusterIssuer). `acme` probes ACME issuers."""

    def __init__(
        self,
        issuers: KnownIssuers,
        tools: IssuerTools,
        *,
        acme: Callable[[ObjectKey], Awaitable[str]],
    ) -> None:
        self._issuers = issuers
        self._tools = tools
        self._acme = acme

    async def probe(self, issuer: ObjectKey) -> str:
        """Why the issuer's server does not answer, in a sentence; empty: it does."""
        reference = reference_to(issuer)
        state = self._issuers.find(reference, issuer.namespace)
        if state is None:
            return "the issuer does not exist any more"
        issuer_type = PROBED.get(kind_of(state.view.spec))
        if issuer_type is None:
            return await self._acme(issuer)
        secrets_in = self._issuers.secrets_of(reference, issuer.namespace)
        reader = SecretReader(self._tools.secrets, Dependents(), issuer)
        tools = self._tools.within(secrets_in, reader.within(secrets_in))
        return await issuer_type.probe(state.view, tools)
