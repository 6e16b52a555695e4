"""The status of a set: which member signs now, and whether any member can.

The conditions for a member to sign are in `controllers/requests/members.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from certwright.controllers.cache.issuer_sets import members_of
from certwright.controllers.requests.members import MemberProblem, Members, display_name
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api import conditions
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import Condition, ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Result
from certwright.resources import reasons
from certwright.resources.issuer import ClusterIssuerSet, IssuerSet, IssuerSetStatus
from certwright.resources.references import IssuerReference

RETURN_AFTER: Final = timedelta(minutes=10)
"""How long a preferred member must have worked before the set returns to it."""


class Activity(NamedTuple):
    """The active member, None where none can sign; and when the set returns to a preferred one."""

    active: IssuerReference | None = None
    return_time: datetime | None = None


def next_activity(
    members: Sequence[IssuerReference],
    working: Sequence[IssuerReference],
    status: IssuerSetStatus,
    now: datetime,
    *,
    is_changed: bool,
) -> Activity:
    """The activity that follows `status`. `working`: the `members` that can sign, in order. `is_changed`: the
    spec has changed since that status, so its new order applies immediately."""
    if not working:
        return Activity()
    first, former = working[0], status.active
    current = next((member for member in working if former is not None and member.same_issuer(former)), None)
    if current is None or is_changed or members.index(first) >= members.index(current):
        return Activity(first if current is None or is_changed else current)
    return_time = status.return_time or (now + RETURN_AFTER).replace(microsecond=0)
    return Activity(first) if now >= return_time else Activity(current, return_time)


T = TypeVar("T", bound=IssuerSet | ClusterIssuerSet)

WORKING = "AllMembersReady"
DEGRADED = "SomeMembersReady"
"""At least one member can sign, and at least one cannot."""
NONE_READY = "NoMemberReady"
ACTIVE_CHANGED = "ActiveMemberChanged"


class CheckedMember(NamedTuple):
    """A member by its index in `spec.issuers`, and why it cannot sign."""

    place: int
    member: IssuerReference
    problem: MemberProblem | None

    def __str__(self) -> str:
        assert self.problem is not None
        fix = f"; {self.problem.fix}" if self.problem.fix else ""
        return f"spec.issuers[{self.place}]: {display_name(self.member)} {self.problem.why}{fix}"


class IssuerSetReconciler(Generic[T]):
    """Reconciles the sets of one kind: keeps their status."""

    def __init__(self, informer: Informer[T], members: Members, toolbox: Toolbox) -> None:
        self._kind = informer.kind
        self._informer = informer
        self._members = members
        self._toolbox = toolbox
        self._status = toolbox.status_of(informer)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Check the members and write the status, if it has changed. Raises what the write raises."""
        issuer_set = self._informer.cache.get(key)
        if issuer_set is None or issuer_set.metadata.deletion_timestamp is not None:
            return Result()
        now = self._toolbox.now()
        allowed, namespace = members_of(issuer_set), issuer_set.metadata.namespace
        checked = [
            CheckedMember(
                place,
                member,
                self._members.problem_of(member, namespace) if member in allowed else _NOT_ALLOWED,
            )
            for place, member in enumerate(issuer_set.spec.issuers)
        ]
        if any(entry.problem is not None and entry.problem.is_unchecked for entry in checked):
            # The verdict enqueues the set again. Without it the set would leave a member that works.
            return Result()
        status = _status(issuer_set, checked, now)
        try:
            written = await self._status.commit(
                self._kind, issuer_set, msgspec.structs.replace(issuer_set, status=status)
            )
        except NotFound:
            return Result()
        former, active = issuer_set.status.active, written.status.active
        if active is not None and former is not None and not former.same_issuer(active):
            ready = conditions.find(written.status.conditions, reasons.READY)
            message = ready.message if ready is not None else ""
            self._toolbox.recorder.event(self._kind, written, "Normal", ACTIVE_CHANGED, message)
        return Result(wake_at=status.return_time)


_NOT_ALLOWED = MemberProblem(
    "cannot be a member",
    "name an Issuer of the set's namespace or a ClusterIssuer; a ClusterIssuerSet has ClusterIssuers only",
)


def _status(
    issuer_set: IssuerSet | ClusterIssuerSet, checked: Sequence[CheckedMember], now: datetime
) -> IssuerSetStatus:
    before = conditions.find(issuer_set.status.conditions, reasons.READY)
    is_changed = before is None or before.observed_generation != issuer_set.metadata.generation
    working = [entry.member for entry in checked if entry.problem is None]
    activity = next_activity(issuer_set.spec.issuers, working, issuer_set.status, now, is_changed=is_changed)
    ready = _ready(checked, activity.active)
    ready = msgspec.structs.replace(ready, observed_generation=issuer_set.metadata.generation)
    return msgspec.structs.replace(
        issuer_set.status,
        active=activity.active,
        return_time=activity.return_time,
        conditions=conditions.with_condition(issuer_set.status.conditions, ready, now),
    )


def _ready(checked: Sequence[CheckedMember], active: IssuerReference | None) -> Condition:
    problems = [str(entry) for entry in checked if entry.problem is not None]
    if active is None:
        message = "; ".join(problems) or "spec.issuers has no members; name an Issuer or ClusterIssuer"
        return Condition(type=reasons.READY, status="False", reason=NONE_READY, message=message)
    message = "; ".join([f"{display_name(active)} signs", *problems])
    reason = DEGRADED if problems else WORKING
    return Condition(type=reasons.READY, status="True", reason=reason, message=message)
