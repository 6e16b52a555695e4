"""Preconditions of writes, checked against the current row."""

from __future__ import annotations

from certwright.kube.store.contract import Changed, Encode, Exists, Missing, Row


def check_put(current: Row | None, expect: int | None) -> None:
    """Raise `Exists`, `Missing` or `Changed` as `Store.put` must."""
    if expect is None:
        return
    if current is None:
        if expect != 0:
            raise Missing(f"the key does not exist; revision {expect} was expected")
    elif expect == 0:
        raise Exists(current)
    elif current.revision != expect:
        raise Changed(current)


def check_delete(current: Row | None, expect: int | None) -> Row:
    """The row that `Store.delete` may remove. Raises `Missing` or `Changed` as it must."""
    if current is None:
        raise Missing("the key does not exist")
    if expect is not None and current.revision != expect:
        raise Changed(current)
    return current


def farewell(current: Row, revision: int, encode: Encode | None) -> Row:
    """The last state, for watchers, of a row that is deleted at `revision`."""
    if encode is None:
        return current._replace(revision=revision)
    return Row(current.key, revision, *encode(revision))
