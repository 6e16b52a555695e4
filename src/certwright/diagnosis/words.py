"""Times, durations and counts in the words of messages."""

from __future__ import annotations

from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Any

LONGEST = 2_000
"""Characters of a text that people read; messages of a status may have megabytes."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY
# (below this many seconds, the first unit, the second unit or 0), as kubectl's ages:
# apimachinery `pkg/util/duration`, HumanDuration.
_AGES = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
_LETTER = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
_NAME = ((_YEAR, "year"), (_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (1, "second"))


def parse_time(value: Any) -> datetime | None:
    """An API time (RFC 3339) in UTC, or None for anything else; whoever may write a status chooses it."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    # A part of the last second of year 9999 is rounded beyond it by `timestamp`.
    return moment.replace(microsecond=0) if moment.year == MAXYEAR else moment


def age(moment: datetime | None, now: datetime) -> str:
    """The time since `moment` in kubectl's format: `45s`, `5m10s`, `3h5m`, `12d`; `<unknown>` for None."""
    if moment is None:
        return "<unknown>"
    seconds = max(0, int((now - moment).total_seconds()))
    for limit, first, second in _AGES:
        if seconds < limit:
            number, rest = divmod(seconds, first)
            tail = f"{rest // second}{_LETTER[second]}" if second and rest >= second else ""
            return f"{number}{_LETTER[first]}{tail}"
    return f"{seconds // _YEAR}y"


def span(length: timedelta) -> str:
    """A duration, rounded, in its largest sensible unit: `60 days`, `1 hour`, `90 minutes`."""
    seconds = max(0, round(length.total_seconds()))
    for unit, name in _NAME:
        if seconds >= 2 * unit or seconds == unit:
            return count(round(seconds / unit), name)
    return count(seconds, "second")


def from_now(moment: datetime, now: datetime) -> str:
    """`in 59 days`, `2 hours ago`, `now`."""
    if abs(moment - now) < timedelta(seconds=1):
        return "now"
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def at(moment: datetime) -> str:
    """A moment for people, to the minute, in UTC: `2027-02-19 05:00 UTC`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def when(moment: datetime | None, now: datetime) -> str:
    """A moment and how far away it is: `2027-02-19 05:00 UTC (in 59 days)`; empty for None."""
    return f"{at(moment)} ({from_now(moment, now)})" if moment else ""


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 day`, `2 days`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def shortened(text: str, most: int = LONGEST) -> str:
    """The text, or the start of one with more than `most` characters."""
    return text if len(text) <= most else f"{text[:most]}…"


def sentence(text: str) -> str:
    """`text` on one line, without its final full stop, as a part of another sentence."""
    return " ".join(text.split()).rstrip(".")
