"""Reading and changing `status.conditions`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from certwright.kube.api.meta import Condition


def find(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of that type, or None."""
    for condition in conditions:
        if condition.type == kind:
            return condition
    return None


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Whether the condition of that type exists with status `True`."""
    condition = find(conditions, kind)
    return condition is not None and condition.status == "True"


def with_condition(conditions: tuple[Condition, ...], new: Condition, now: datetime) -> tuple[Condition, ...]:
    """`conditions` with `new` in place of the one of its type; the others keep their order.

    `lastTransitionTime` stays as it was while the status stays as it was (Kubernetes API conventions,
    "Typical status properties"); otherwise it becomes `now`, in whole seconds.
    """
    old = find(conditions, new.type)
    moment = now.replace(microsecond=0)
    if old is not None and old.status == new.status and old.last_transition_time is not None:
        moment = old.last_transition_time
    new = msgspec.structs.replace(new, last_transition_time=moment)
    if old is None:
        return (*conditions, new)
    return tuple(new if condition.type == new.type else condition for condition in conditions)


def without(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """`conditions` less the one of that type."""
    return tuple(condition for condition in conditions if condition.type != kind)
