"""Exponential backoff."""

from __future__ import annotations

from datetime import timedelta


def doubled(base: timedelta, attempts: int, *, cap: timedelta) -> timedelta:
    """The wait after the `attempts`-th failure in a row: base, 2·base, 4·base … at most `cap`.

    `attempts` below 1 counts as 1. Never overflows, however large `attempts` is.
    """
    if base <= timedelta(0):
        return timedelta(0)
    doublings = max(0, attempts - 1)
    # 2**64 times any positive timedelta is over every cap that a timedelta can hold.
    if doublings > 64 or base.total_seconds() * 2.0**doublings >= cap.total_seconds():
        return cap
    return base * (1 << doublings)
