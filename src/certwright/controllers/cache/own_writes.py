"""Distinguish the watch events of a reconcile's own writes from all others.

A reconcile that continues from its own write does not requeue its key for it: that pass would do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import ObjectKey

_worked_on: ContextVar[tuple[AnyKind, ObjectKey] | None] = ContextVar("worked on", default=None)


@contextmanager
def working_on(kind: AnyKind, key: ObjectKey) -> Iterator[None]:
    """Within this context, writes by this task are own writes of that object's reconcile."""
    token = _worked_on.set((kind, key))
    try:
        yield
    finally:
        _worked_on.reset(token)


def is_own_write(kind: AnyKind, key: ObjectKey) -> bool:
    """Whether the current event is a write by the running reconcile of that very object. Watch events arrive
    in another task, and never are."""
    cached = _worked_on.get()
    return cached is not None and cached[0] is kind and cached[1] == key
