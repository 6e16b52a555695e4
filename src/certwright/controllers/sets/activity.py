"""The active member of a set. Pure: no clock, no I/O.

Away from a member that cannot sign the set moves immediately; back to a preferred one only after that has
worked for some time without a pause. So a server that comes and goes moves no certificates back and forth.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from certwright.resources.issuer_set import IssuerSetStatus
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
    """The activity that follows from `status`. `working` are those of the `members` that can sign, in order;
    `is_changed`: the spec is another than at that status, so that its order applies immediately."""
    if not working:
        return Activity()
    first, former = working[0], status.active
    current = next((member for member in working if former is not None and member.same_issuer(former)), None)
    if current is None or is_changed or members.index(first) >= members.index(current):
        return Activity(first if current is None or is_changed else current)
    return_time = status.return_time or (now + RETURN_AFTER).replace(microsecond=0)
    return Activity(first) if now >= return_time else Activity(current, return_time)
