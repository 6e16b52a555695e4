"""What controllers are built from, and the form of a row in the table of `wiring.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from certwright.controllers import table
from certwright.controllers.acme.setup import Acme
from certwright.controllers.cache.event_handlers import Add
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cainjector.reconcile import follow_targets
from certwright.controllers.cainjector.targets import KINDS, Target
from certwright.controllers.issuer_tools import IssuerTools
from certwright.controllers.precedence import Precedence, Urgency
from certwright.controllers.settings import Settings
from certwright.controllers.shared import Shared
from certwright.controllers.shims.sources import follow_sources
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.controller import Result
from certwright.kube.util.clock import Clock


class Reconciles(Protocol):
    """A reconciler."""

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one object from its actual to its desired state."""


R = TypeVar("R", bound=Reconciles)


class Parts(Shared):
    """What the controllers of one process share, ACME included."""

    def __init__(self, toolbox: Toolbox, clock: Clock, settings: Settings, mine: Mine | None) -> None:
        super().__init__(toolbox, clock, settings, mine)
        self.acme = Acme(self)
        self.members = self.acme.members
        self.urgency = Urgency(self.caches, toolbox.now)
        self.ingress_like = follow_sources(
            toolbox.client, clock, settings.namespace or "", settings.shims, self.enabled
        )
        self.caches.add(self.ingress_like.all)
        self.ca_targets = {
            kind.plural: follow_targets(toolbox.client, clock, kind) for kind in self._ca_kinds
        }
        self.caches.add(self.ca_targets.values())
        self.issuer_tools = IssuerTools(
            toolbox, self.caches.secrets, self.acme.tools, self.servers.tools, self.policy
        )

    @property
    def _ca_kinds(self) -> Sequence[Kind[Target]]:
        # They are not in a namespace: with one, there are no rights to them.
        return KINDS if table.CA_INJECTOR in self.enabled and not self.settings.namespace else ()


class Row(msgspec.Struct, Generic[R], frozen=True):
    """One controller. `objects` are those that it reconciles, and `add_handlers` registers the event handlers
    that enqueue their keys; it does not run where `runs` returns False. Keys are this replica's only, unless
    `is_divided` is False; `workers` returns their number from the configured one. With `is_shared` one
    namespace never occupies all workers."""

    name: str
    objects: str
    build: Callable[[Parts], R]
    add_handlers: Callable[[Parts, R, Add], None]
    runs: Callable[[Parts], bool] = lambda _parts: True
    precedence: Callable[[Parts], Precedence] = lambda _parts: Precedence()
    workers: Callable[[int], int] = lambda configured: configured
    is_divided: bool = True
    is_shared: bool = False
    yields_when_idle: bool = True
