"""In-memory state of one Challenge while it is reconciled, and what follows from a Challenge alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from certwright.controllers.acme.identifiers import canonical
from certwright.controllers.acme.scheduler import Wanted
from certwright.kube.api.meta import controller_of
from certwright.resources.challenge import Challenge

if TYPE_CHECKING:
    # Loaded with the first Challenge only.
    from certwright.acme.protocol.authorizations import Authorization
    from certwright.acme.solvers.contract import Task
    from certwright.controllers.acme.solver_factory import Means


@dataclass(slots=True)
class Work:
    """What this process has done for one challenge; after a restart it is done again."""

    uid: str
    task: Task
    means: Means = field(repr=False)
    presented_at: datetime | None = None
    looks: int = 0
    look_at: datetime | None = None
    is_seen: bool = False
    accepted_at: datetime | None = None
    polls: int = 0
    poll_at: datetime | None = None
    asked_at: datetime | None = None
    not_before: datetime | None = None
    is_patience: bool = False
    waits_since: datetime | None = None
    proven_at: datetime | None = None


def is_blank(challenge: Challenge) -> bool:
    """Whether the status shows nothing that a verdict would have to take back."""
    status = challenge.status
    return not (status.state or status.reason or status.presented or status.processing)


def wanted_by(challenge: Challenge) -> Wanted:
    """The slot that a Challenge requests."""
    meta, spec = challenge.metadata, challenge.spec
    owner = controller_of(meta)
    return Wanted(
        key=meta.key,
        namespace=meta.namespace,
        order=owner.uid if owner is not None else meta.uid,
        subject=(spec.dns_name, spec.type),
    )


def is_offered(challenge: Challenge, found: Authorization) -> bool:
    """Whether the CA's authorization is for the Challenge's name, and offers its challenge."""
    spec = challenge.spec
    if found.wildcard != spec.wildcard or canonical("dns", found.identifier.value) != canonical(
        "dns", spec.dns_name
    ):
        return False
    return any(
        (one.url, one.token, one.type) == (spec.url, spec.token, spec.type.lower())
        for one in found.challenges
    )
