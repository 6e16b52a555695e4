"""The time line of the first page: renewals and expiries of the next 90 days, and the ends of CAs.

Geometry only; `templates/timeline.html` draws it as SVG. A mark stands for a certificate at its renewal, with
a thin tail to its expiry. If there are too many marks, bars show the number of renewals of each day.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from certwright.dashboard.index import Row
from certwright.kube.api.meta import ObjectKey

DAYS: Final = 90
WIDTH: Final = 1000
"""Units of the drawing; a unit is about a pixel on a wide screen."""
_MARGIN: Final = 12
_LANES: Final = 40
_MOST_MARKS: Final = 90
"""200 bytes each, of a page of 60 kB."""
_GAP: Final = 14
_LANE: Final = 11
_NARROW_LANE: Final = 8
_WIDE_LANES: Final = 22
"""Lanes are narrow where there are more than these."""
_LATE_S: Final = 600.0
"""A renewal that is due is overdue after this time: until then it is in progress."""
_BARS: Final = 80
_DAY_S: Final = 86_400.0
_MOST_CAS: Final = 40
_CA_YEARS: Final = 30


class Mark(msgspec.Struct, frozen=True):
    """A certificate: at `x`, in the lane at `y`; its tail ends at `end`."""

    row: Row
    x: float
    y: float
    end: float
    level: str


class Bar(msgspec.Struct, frozen=True):
    """The renewals of a day."""

    day: int
    x: float
    y: float
    width: float
    height: float
    number: int


class Tick(msgspec.Struct, frozen=True):
    """A labelled place of an axis."""

    x: float
    words: str


class Timeline(msgspec.Struct, frozen=True):
    """What is drawn: `marks`, or `bars` where there are too many; the CAs; the height of the first part."""

    marks: Sequence[Mark]
    bars: Sequence[Bar]
    overdue: int
    later: int
    ticks: Sequence[Tick]
    cas: Sequence[Mark]
    ca_ticks: Sequence[Tick]
    height: int


def timeline(rows: Sequence[Row], troubles: Mapping[ObjectKey, str], now: float) -> Timeline:
    """The time line of these certificates, for a moment in Unix time."""
    horizon = now + DAYS * _DAY_S
    planned = [row for row in rows if row.renewal and not row.is_ca]
    leaves = [row for row in planned if row.renewal <= horizon]
    late = now - _LATE_S
    overdue = len([row for row in leaves if row.renewal < late])
    marks: Sequence[Mark] = ()
    bars: Sequence[Bar] = ()
    height = 4 * _LANE
    if len(leaves) <= _MOST_MARKS:
        marks, height = (
            _marks(leaves, troubles, now) or _marks(leaves, troubles, now, longest=3 * _GAP) or ((), 0)
        )
    if leaves and not marks:
        bars, height = _bars(leaves, now), _BARS + _LANE
    return Timeline(
        marks=marks,
        bars=bars,
        overdue=overdue,
        later=len(planned) - len(leaves),
        ticks=[Tick(_x(day), "today" if not day else f"{day} days") for day in range(0, DAYS + 1, 15)],
        cas=_cas([row for row in rows if row.is_ca and row.not_after], troubles, now),
        ca_ticks=[Tick(_log_x(days), words) for days, words in _CA_TICKS],
        height=height,
    )


_CA_TICKS: Final = ((0, "today"), (7, "1 week"), (30, "1 month"), (365, "1 year"), (3650, "10 years"))


def _x(days: float) -> float:
    return round(_MARGIN + (WIDTH - 2 * _MARGIN) * min(max(days / DAYS, 0.0), 1.0), 1)


def _log_x(days: float) -> float:
    share = math.log1p(max(days, 0.0)) / math.log1p(_CA_YEARS * 365)
    return round(_MARGIN + (WIDTH - 2 * _MARGIN) * min(share, 1.0), 1)


def _level(row: Row, troubles: Mapping[ObjectKey, str], now: float) -> str:
    if _is_overdue(row, now) or row.not_after <= now:
        return "bad"
    return "warn" if row.key in troubles else "ok"


def _is_overdue(row: Row, now: float) -> bool:
    return 0 < row.renewal < now - _LATE_S


def _marks(
    rows: Sequence[Row], troubles: Mapping[ObjectKey, str], now: float, *, longest: float = math.inf
) -> tuple[Sequence[Mark], int] | None:
    """A mark for each certificate, in the first free lane, and the height of all lanes. None: there are too
    few lanes. A mark may cover another mark's tail only beyond its first `longest` units."""
    ends: list[float] = []
    places: list[tuple[Row, float, float, int]] = []
    for row in sorted(rows, key=lambda row: row.renewal):
        x, end = _x((row.renewal - now) / _DAY_S), _x((row.not_after - now) / _DAY_S)
        lane = next((number for number, until in enumerate(ends) if until + _GAP <= x), len(ends))
        if lane == len(ends):
            if len(ends) == _LANES:
                return None
            ends.append(0.0)
        ends[lane] = max(x, min(end, x + longest))
        places.append((row, x, max(end, x), lane))
    step = _LANE if len(ends) <= _WIDE_LANES else _NARROW_LANE
    marks = [Mark(row, x, (lane + 1) * step, end, _level(row, troubles, now)) for row, x, end, lane in places]
    return marks, max(len(ends) + 1, 4) * step


def _bars(rows: Sequence[Row], now: float) -> Sequence[Bar]:
    numbers = [0] * (DAYS + 1)
    for day, number in Counter([(row.renewal - now) // _DAY_S for row in rows]).items():
        numbers[min(max(int(day), 0), DAYS)] += number
    most = max(numbers) or 1
    width = (WIDTH - 2 * _MARGIN) / (DAYS + 1)
    return [
        Bar(
            day,
            round(_MARGIN + day * width, 1),
            round(_BARS * (1 - number / most), 1) + 1,
            round(width - 2, 1),
            max(round(_BARS * number / most, 1), 1.0),
            number,
        )
        for day, number in enumerate(numbers)
        if number
    ]


def _cas(rows: Sequence[Row], troubles: Mapping[ObjectKey, str], now: float) -> Sequence[Mark]:
    """The CAs, at their ends, the first ones where there are many."""
    first = sorted(rows, key=lambda row: row.not_after)[:_MOST_CAS]
    marks = []
    for row in first:
        x = _log_x((row.not_after - now) / _DAY_S)
        marks.append(
            Mark(
                row,
                _log_x((row.renewal - now) / _DAY_S) if row.renewal else x,
                _LANE,
                x,
                _level(row, troubles, now),
            )
        )
    return marks
