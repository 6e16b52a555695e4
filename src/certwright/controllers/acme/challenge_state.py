"""In-memory state of one Challenge between two passes, and what follows from a Challenge alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from certwright.controllers.acme.announcing import Announced
from certwright.controllers.acme.identifiers import canonical
from certwright.controllers.acme.pause import Pause
from certwright.controllers.acme.scheduler import SlotRequest
from certwright.kube.api.meta import ObjectKey, controller_of
from certwright.resources.acme import Challenge

if TYPE_CHECKING:
    # Loaded with the first Challenge only.
    from certwright.acme.protocol.orders import Authorization
    from certwright.acme.solvers.contract import Task
    from certwright.controllers.acme.solver_factory import Means


class Prepared(msgspec.Struct, frozen=True):
    """The solver is built; nothing is presented."""


class Presented(msgspec.Struct, frozen=True):
    """The solution is presented, and no self-check has succeeded. `checks` counts those that failed; the next
    one is made at `check_at` (None: now)."""

    presented_at: datetime
    checks: int = 0
    check_at: datetime | None = None


class Visible(msgspec.Struct, frozen=True):
    """A self-check has succeeded, or is not made: the CA is notified as soon as there is a slot."""

    presented_at: datetime


class Accepted(msgspec.Struct, frozen=True):
    """The CA validates the challenge. It has been polled `polls` - 1 times; the next poll is at `poll_at`
    (None: not planned yet)."""

    presented_at: datetime
    accepted_at: datetime
    polls: int = 0
    poll_at: datetime | None = None


class Proven(msgspec.Struct, frozen=True):
    """The CA has called the challenge valid, and the proof is removed; the status may not say so yet."""

    proven_at: datetime


Stage = Prepared | Presented | Visible | Accepted | Proven
"""How far this process has come with one challenge."""


@dataclass(frozen=True, slots=True)
class Work:
    """What this process has done for one challenge; after a restart it is done again. `asked_at`: when the CA
    was last asked for the authorization; None: this process has not compared the Challenge with the CA."""

    task: Task
    means: Means = field(repr=False)
    stage: Stage = field(default_factory=Prepared)
    asked_at: datetime | None = None
    pause: Pause | None = None

    @property
    def presented_at(self) -> datetime | None:
        """Since when this process presents the solution; None: it does not."""
        return None if isinstance(self.stage, Prepared | Proven) else self.stage.presented_at


class Memory(msgspec.Struct, frozen=True):
    """All that is kept between two passes over the Challenge with that UID. `failures`: in a row.
    `announced`: the last reason that was written."""

    uid: str
    failures: int = 0
    announced: Announced | None = None
    work: Work | None = None


def is_blank(challenge: Challenge) -> bool:
    """Whether the status shows nothing that a verdict would have to take back."""
    status = challenge.status
    return not (status.state or status.reason or status.presented or status.processing)


def slot_request(challenge: Challenge) -> SlotRequest:
    """The slot that a Challenge requests."""
    meta, spec = challenge.metadata, challenge.spec
    owner = controller_of(meta)
    return SlotRequest(
        key=meta.key,
        namespace=meta.namespace,
        order=owner.uid if owner is not None else meta.uid,
        subject=(spec.dns_name, spec.type),
    )


def is_offered(challenge: Challenge, authorization: Authorization) -> bool:
    """Whether the CA's authorization is for the Challenge's name, and offers its challenge."""
    spec = challenge.spec
    if authorization.wildcard != spec.wildcard or canonical(
        "dns", authorization.identifier.value
    ) != canonical("dns", spec.dns_name):
        return False
    return any(
        (offered.url, offered.token, offered.type) == (spec.url, spec.token, spec.type.lower())
        for offered in authorization.challenges
    )


class Memories:
    """The memories of all Challenges, by key."""

    def __init__(self) -> None:
        self._memories: dict[ObjectKey, Memory] = {}

    def stage_of(self, key: ObjectKey) -> Stage | None:
        """How far the Challenge of that name has come."""
        memory = self._memories.get(key)
        return memory.work.stage if memory is not None and memory.work is not None else None

    def of(self, challenge: Challenge) -> Memory:
        """The memory of the Challenge; blank if there is none."""
        memory, uid = self._memories.get(challenge.metadata.key), challenge.metadata.uid
        return memory if memory is not None and memory.uid == uid else Memory(uid)

    def keep(self, challenge: Challenge, memory: Memory) -> None:
        """Replace the memory of the Challenge."""
        if memory == Memory(memory.uid):
            self._memories.pop(challenge.metadata.key, None)
        else:
            self._memories[challenge.metadata.key] = memory

    def keep_work(self, challenge: Challenge, work: Work) -> None:
        """Replace the work in the memory of the Challenge."""
        self.keep(challenge, replace(self.of(challenge), work=work))

    def enter(self, challenge: Challenge, stage: Stage) -> None:
        """Replace the stage of the work in the memory of the Challenge, which has one."""
        work = self.of(challenge).work
        assert work is not None
        self.keep_work(challenge, dataclasses.replace(work, stage=stage))

    def pop_former(self, key: ObjectKey, challenge: Challenge | None) -> Work | None:
        """Remove the memory of an earlier object of that name. Returns its work."""
        memory = self._memories.get(key)
        if memory is None or (challenge is not None and challenge.metadata.uid == memory.uid):
            return None
        return self._memories.pop(key).work
