"""The solver and the self-check of each Challenge, from its spec, the Secrets it names, and the settings."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from certwright.controllers.cache.references import Dependents
from certwright.controllers.issuers import SecretReader
from certwright.controllers.shared import Shared
from certwright.kube.api.meta import ObjectKey
from certwright.resources.challenge import Challenge

if TYPE_CHECKING:
    from certwright.controllers.acme.solver_factory import Means
    from certwright.controllers.acme.surroundings import Solvers


class SolverLookup:
    """Of the Challenges of this process; `dependents` records whose Secrets were read."""

    def __init__(self, shared: Shared, dependents: Dependents[ObjectKey]) -> None:
        self._shared = shared
        self._dependents = dependents

    async def means_of(self, challenge: Challenge) -> Means:
        """The solver and the self-check. Raises `SolverError` where none is possible."""
        meta = challenge.metadata
        namespace = self._shared.issuers.secrets_of(challenge.spec.issuer_ref, meta.namespace)
        reader = SecretReader(self._shared.caches.secrets, self._dependents, meta.key)
        return await self._solvers.means_of(challenge, reader.within(namespace), namespace)

    @cached_property
    def _solvers(self) -> Solvers:
        from certwright.controllers.acme.surroundings import Solvers  # loads DNS and HTTP libraries: 14 MB

        shared = self._shared
        return Solvers(shared.settings.acme, shared.toolbox.client, shared.servers, shared.clock.now)
