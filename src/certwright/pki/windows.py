"""Maintenance windows: the times at which a certificate may be renewed.

Source: cert-manager `pkg/util/pki/renewaltime.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import msgspec

from certwright.kit.cron import moments_after

# A window may open every minute and stay open for weeks. Examining this many openings takes 10 ms; the
# answer is then still correct, but a later opening might last longer.
_MOST_OPENINGS = 1000

_REMEMBERED = 4096


class Window(msgspec.Struct, frozen=True):
    """Opens at the moments of `cron` on the clocks of `zone` (IANA name), and stays open for `length`.

    The interval is half-open: it includes the opening, but not the moment `length` later.
    """

    cron: str
    length: timedelta
    zone: str = "UTC"


class Slot(NamedTuple):
    """A moment in an open window, and how long (at least) that window stays open from then on."""

    moment: datetime
    room: timedelta


@lru_cache(maxsize=_REMEMBERED)
def slot(windows: tuple[Window, ...], moment: datetime, end: datetime) -> Slot | None:
    """`moment` if a window is open then, otherwise when the next one opens; None if none does before `end`.

    Raises `ValueError` for an unknown zone. Takes some 100 µs; results are cached.
    """
    slots = [
        candidate
        for window in windows
        if (candidate := _slot(window, moment)) is not None and candidate.moment < end
    ]
    # Of several open windows, the one that stays open longest.
    return min(slots, key=lambda opening: (opening.moment, -opening.room), default=None)


def _slot(window: Window, moment: datetime) -> Slot | None:
    openings = islice(_openings(window, moment - window.length), _MOST_OPENINGS)
    first = next(openings, None)
    if first is None:
        return None
    if first > moment:
        return Slot(first, window.length)
    last = _last_until(moment, openings, first)
    return Slot(moment, last + window.length - moment)


def _openings(window: Window, moment: datetime) -> Iterator[datetime]:
    try:
        from zoneinfo import ZoneInfo  # 0.3 MB; few certificates have windows

        zone = ZoneInfo(window.zone)
    except (KeyError, OSError) as error:
        raise ValueError(f'there is no time zone "{window.zone}"') from error
    return moments_after(window.cron, moment, zone)


def _last_until(moment: datetime, openings: Iterable[datetime], last: datetime) -> datetime:
    for opening in openings:
        if opening > moment:
            break
        last = opening
    return last
