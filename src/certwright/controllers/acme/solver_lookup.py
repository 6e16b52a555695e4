"""The solvers of this process, from their specs, the Secrets that these name, and the settings."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from certwright.controllers.acme.challenge_progress import SolverUse
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.routes.services import SolverServices
from certwright.controllers.acme.routes.solver import Routes
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cache.shard_members import Shards, ours
from certwright.controllers.issuers import SecretReader
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.servers import Servers
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.util.clock import Clock
from certwright.resources.acme import Challenge
from certwright.resources.references import IssuerReference
from certwright.resources.solver import Solver

if TYPE_CHECKING:
    from certwright.controllers.acme.challenge_progress import SolverAndCheck
    from certwright.controllers.acme.solver_factory import Solvers


class SolverLookup:
    """Makes solvers. `dependents` records which Secrets each Order and Challenge has read."""

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        caches: Caches,
        issuers: KnownIssuers,
        servers: Servers,
        dependents: Dependents[ObjectKey],
        options: AcmeOptions,
        clock: Clock,
        mine: Mine | None,
    ) -> None:
        self._client = toolbox.client
        self._caches = caches
        self._issuers = issuers
        self._servers = servers
        self._dependents = dependents
        self._options = options
        self._now = toolbox.now
        self.routes: Routes | None = None
        """What creates Ingresses and HTTPRoutes for HTTP-01; None: this process does not."""
        if options.cluster_listener is not None and options.responder is not None:
            self.routes = Routes(
                toolbox.client,
                toolbox.recorder,
                clock,
                options.cluster_listener,
                partial(_shard_of, mine, caches),
            )

    @property
    def services(self) -> SolverServices | None:
        """The Services that lead to challenges; None: see `routes`."""
        return self.routes.services if self.routes is not None else None

    async def find(self, challenge: Challenge) -> SolverAndCheck:
        """The solver and the self-check. Raises `SolverError` where none is possible."""
        use = self.use(challenge.spec.solver, challenge.spec.issuer_ref, challenge.metadata)
        return await self.make(replace(use, challenge=challenge))

    def use(self, solver: Solver, issuer: IssuerReference, meta: ObjectMeta) -> SolverUse:
        """The use of an issuer's solver by the Order or Challenge with this metadata, which a change of the
        Secrets requeues."""
        namespace = self._issuers.secrets_of(issuer, meta.namespace)
        reader = SecretReader(self._caches.secrets, self._dependents, meta.key)
        return SolverUse(
            solver=solver,
            issuer_kind=issuer.kind_or_default,
            get_secret=reader.within(namespace),
            secrets_in=namespace,
        )

    async def make(self, use: SolverUse) -> SolverAndCheck:
        """The solver and the self-check. Raises `SolverError` where none is possible."""
        return await self._solvers.make(use)

    @cached_property
    def _solvers(self) -> Solvers:
        from certwright.controllers.acme.solver_factory import Solvers  # loads DNS and HTTP libraries: 14 MB

        return Solvers(self._options, self._client, self._servers, self._now, self.routes)


def _shard_of(mine: Mine | None, caches: Caches, challenge: Challenge) -> str:
    """The number of the shard that a Challenge belongs to; empty without shards."""
    key = challenge.metadata.key
    if not isinstance(mine, Shards):
        return ""
    numbers = sorted(mine.numbers)
    is_in = {
        number: ours("challenges", Shards(frozenset({number}), mine.count), caches) for number in numbers
    }
    return str(next((number for number, has in is_in.items() if has(key)), min(mine.numbers, default=0)))
