"""Ages in a table's cell: the time since an event in a few characters.

Source: apimachinery `pkg/util/duration` (HumanDuration).
"""

from __future__ import annotations

from datetime import datetime

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY

# Up to `limit` seconds an age is shown in the first unit, and the rest in the second one, if any.
_STEPS: tuple[tuple[int, int, str, int, str], ...] = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def human_duration(seconds: float) -> str:
    """`5s`, `3m12s`, `2h`, `4d3h`, `400d`, `9y`.

    Less than two seconds in the future counts as now, since clocks differ; more is `<invalid>`.
    """
    whole_seconds = int(seconds)
    if whole_seconds < -1:
        return "<invalid>"
    whole_seconds = max(0, whole_seconds)
    for limit, unit, name, rest_unit, rest_name in _STEPS:
        if whole_seconds < limit:
            count, rest = divmod(whole_seconds, unit)
            part = rest // rest_unit if rest_unit else 0
            return f"{count}{name}{part}{rest_name}" if part else f"{count}{name}"
    return f"{whole_seconds // _YEAR}y"


def age(timestamp: object, now: float) -> str:
    """The age of an RFC 3339 time at `now` (seconds since 1970); `<unknown>` where there is none."""
    if not timestamp:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(str(timestamp))
    except ValueError:
        return "<invalid>"
    if moment.tzinfo is None:
        return "<invalid>"
    return human_duration(now - moment.timestamp())
