"""The solvers of this process, from their specs, the Secrets that these name, and the settings."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from certwright.controllers.acme.challenge_work import SolverUse
from certwright.controllers.acme.routes.services import SolverServices
from certwright.controllers.acme.routes.solver import Routes
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.cache.shard_members import Shards, ours
from certwright.controllers.context import Context
from certwright.controllers.issuers import SecretReader
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.resources.acme import Challenge
from certwright.resources.references import IssuerReference
from certwright.resources.solver import Solver

if TYPE_CHECKING:
    from certwright.controllers.acme.challenge_work import Means
    from certwright.controllers.acme.solver_factory import Solvers


class SolverLookup:
    """Makes solvers; `dependents` records which Orders and Challenges have read which Secrets."""

    def __init__(self, shared: Context, dependents: Dependents[ObjectKey]) -> None:
        self._shared = shared
        self._dependents = dependents
        self.routes = _routes(shared)
        """What creates Ingresses and HTTPRoutes for HTTP-01; None: this process does not."""

    @property
    def services(self) -> SolverServices | None:
        """The Services that lead to challenges; None: see `routes`."""
        return self.routes.services if self.routes is not None else None

    async def means_of(self, challenge: Challenge) -> Means:
        """The solver and the self-check. Raises `SolverError` where none is possible."""
        use = self.use(challenge.spec.solver, challenge.spec.issuer_ref, challenge.metadata)
        return await self.make(replace(use, challenge=challenge))

    def use(self, solver: Solver, issuer: IssuerReference, meta: ObjectMeta) -> SolverUse:
        """The use of an issuer's solver by the Order or Challenge with this metadata, which a change of the
        Secrets requeues."""
        namespace = self._shared.issuers.secrets_of(issuer, meta.namespace)
        reader = SecretReader(self._shared.caches.secrets, self._dependents, meta.key)
        return SolverUse(
            solver=solver,
            issuer_kind=issuer.kind_or_default,
            get_secret=reader.within(namespace),
            secrets_in=namespace,
        )

    async def make(self, use: SolverUse) -> Means:
        """The solver and the self-check. Raises `SolverError` where none is possible."""
        return await self._solvers.means_of(use)

    @cached_property
    def _solvers(self) -> Solvers:
        from certwright.controllers.acme.solver_factory import Solvers  # loads DNS and HTTP libraries: 14 MB

        shared = self._shared
        return Solvers(
            shared.settings.acme, shared.toolbox.client, shared.servers, shared.clock.now, self.routes
        )


def _routes(shared: Context) -> Routes | None:
    listener = shared.settings.acme.cluster_listener
    if listener is None or shared.settings.acme.responder is None:
        return None
    toolbox = shared.toolbox
    return Routes(toolbox.client, toolbox.recorder, shared.clock, listener, partial(_shard_of, shared))


def _shard_of(shared: Context, challenge: Challenge) -> str:
    """The number of the shard that a Challenge belongs to; empty without shards."""
    mine, key = shared.mine, challenge.metadata.key
    if not isinstance(mine, Shards):
        return ""
    numbers = sorted(mine.numbers)
    is_in = {
        number: ours("challenges", Shards(frozenset({number}), mine.count), shared.caches)
        for number in numbers
    }
    return str(next((number for number, has in is_in.items() if has(key)), min(mine.numbers, default=0)))
