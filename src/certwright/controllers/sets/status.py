"""Judge a set: which member signs now, and whether any can. The answer is its status.

What a member needs in order to sign is in `controllers/requests/members.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

import msgspec

from certwright.controllers.cache.issuer_sets import members_of
from certwright.controllers.requests.members import Members, Trouble, words_of
from certwright.controllers.sets.activity import next_activity
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api import conditions
from certwright.kube.api.errors import NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import Condition, ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Result
from certwright.resources import reasons
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.issuer_set import ClusterIssuerSet, IssuerSet, IssuerSetStatus

T = TypeVar("T", bound=IssuerSet | ClusterIssuerSet)

WORKING = "AllMembersReady"
DEGRADED = "SomeMembersReady"
"""At least one member can sign, and at least one cannot."""
NONE_READY = "NoMemberReady"
ACTIVE_CHANGED = "ActiveMemberChanged"


class Judged(NamedTuple):
    """A member by its place in `spec.issuers`, and why it cannot sign."""

    place: int
    member: IssuerReference
    trouble: Trouble | None

    def __str__(self) -> str:
        assert self.trouble is not None
        fix = f"; {self.trouble.fix}" if self.trouble.fix else ""
        return f"spec.issuers[{self.place}]: {words_of(self.member)} {self.trouble.why}{fix}"


class SetReconciler(Generic[T]):
    """Keeps the status of one of both kinds."""

    def __init__(self, kind: Kind[T], informer: Informer[T], members: Members, toolbox: Toolbox) -> None:
        self._kind = kind
        self._informer = informer
        self._members = members
        self._toolbox = toolbox
        self._status = toolbox.status_of(informer)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Judge the members and write the status, where it has changed. Raises what the write raises."""
        issuer_set = self._informer.cache.get(key)
        if issuer_set is None or issuer_set.metadata.deletion_timestamp is not None:
            return Result()
        now = self._toolbox.now()
        judged = self._judge(issuer_set)
        if any(one.trouble is not None and one.trouble.is_unchecked for one in judged):
            # The verdict enqueues the set again. Without it the set would leave a member that works.
            return Result()
        status = _status(issuer_set, judged, now)
        try:
            written = await self._status.commit(
                self._kind, issuer_set, msgspec.structs.replace(issuer_set, status=status)
            )
        except NotFound:
            return Result()
        self._report(issuer_set, written)
        return Result(wake_at=status.return_time)

    def _judge(self, issuer_set: T) -> list[Judged]:
        allowed, namespace = members_of(issuer_set), issuer_set.metadata.namespace
        return [
            Judged(
                place,
                member,
                self._members.trouble_of(member, namespace) if member in allowed else _NOT_ALLOWED,
            )
            for place, member in enumerate(issuer_set.spec.issuers)
        ]

    def _report(self, before: T, after: T) -> None:
        former, active = before.status.active, after.status.active
        if active is None or former is None or former.same_issuer(active):
            return
        ready = conditions.find(after.status.conditions, reasons.READY)
        message = ready.message if ready is not None else ""
        self._toolbox.recorder.event(self._kind, after, "Normal", ACTIVE_CHANGED, message)


_NOT_ALLOWED = Trouble(
    "cannot be a member",
    "name an Issuer of the set's namespace or a ClusterIssuer; a ClusterIssuerSet has ClusterIssuers only",
)


def _status(
    issuer_set: IssuerSet | ClusterIssuerSet, judged: Sequence[Judged], now: datetime
) -> IssuerSetStatus:
    before = conditions.find(issuer_set.status.conditions, reasons.READY)
    is_changed = before is None or before.observed_generation != issuer_set.metadata.generation
    working = [one.member for one in judged if one.trouble is None]
    activity = next_activity(issuer_set.spec.issuers, working, issuer_set.status, now, is_changed=is_changed)
    ready = _ready(judged, activity.active)
    ready = msgspec.structs.replace(ready, observed_generation=issuer_set.metadata.generation)
    return msgspec.structs.replace(
        issuer_set.status,
        active=activity.active,
        return_time=activity.return_time,
        conditions=conditions.with_condition(issuer_set.status.conditions, ready, now),
    )


def _ready(judged: Sequence[Judged], active: IssuerReference | None) -> Condition:
    troubled = [str(one) for one in judged if one.trouble is not None]
    if active is None:
        message = "; ".join(troubled) or "spec.issuers has no members; name an Issuer or ClusterIssuer"
        return Condition(type=reasons.READY, status="False", reason=NONE_READY, message=message)
    message = "; ".join([f"{words_of(active)} signs", *troubled])
    reason = DEGRADED if troubled else WORKING
    return Condition(type=reasons.READY, status="True", reason=reason, message=message)
