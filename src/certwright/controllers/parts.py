"""What controllers are built from, and the form of a row in the table of `wiring.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from certwright.controllers.acme.setup import Acme
from certwright.controllers.authorities import Authorities
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.event_handlers import Add
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.issuer_tools import IssuerTools
from certwright.controllers.queues import Precedence, Queues
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.requests.members import Members
from certwright.controllers.retry.backoff import Limits
from certwright.controllers.retry.gate import IssuerGate
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.controller import Result
from certwright.resources.operator_policy import OperatorPolicy


class Reconciles(Protocol):
    """A reconciler."""

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one object from its actual to its desired state."""


R = TypeVar("R", bound=Reconciles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the controllers of one process share, and their settings."""

    toolbox: Toolbox
    caches: Caches
    queues: Queues
    issuers: KnownIssuers
    gate: IssuerGate
    members: Members
    acme: Acme
    issuer_tools: IssuerTools
    authorities: Authorities
    enabled: frozenset[str]
    mine: Mine | None
    secrets_of_cluster_issuers: str
    policy: OperatorPolicy
    limits: Limits
    suffix: Callable[[int], str]
    owner_references: bool
    copied_annotation_prefixes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Row(Generic[R]):
    """One controller. `objects` are those that it reconciles, and `add_handlers` registers the event handlers
    that enqueue their keys; it does not run where `runs` returns False. Keys are this replica's only, unless
    `is_divided` is False; `workers` returns their number from the configured one."""

    name: str
    objects: str
    build: Callable[[Parts], R]
    add_handlers: Callable[[Parts, R, Add], None]
    runs: Callable[[Parts], bool] = lambda _parts: True
    precedence: Callable[[Parts], Precedence] = lambda _parts: Precedence()
    workers: Callable[[int], int] = lambda configured: configured
    is_divided: bool = True
    yields_when_idle: bool = True
