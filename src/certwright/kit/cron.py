"""Cron expressions of five fields: validation, and the moments that they match.

Source: crontab(5); names of months and days, and what a star means beside another field, as in robfig/cron,
which programs written in Go use. `cronsim` does the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class _Field(NamedTuple):
    what: str
    low: int
    high: int
    names: dict[str, int]


_FIELDS: Final = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    # 7 is Sunday as well, as in most crons.
    _Field("day of the week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)


def check_cron(text: str) -> str | None:
    """Why `text` is not a cron expression, or None."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f'must have five fields, not {len(fields)}; write e.g. "0 2 * * 6" (Saturday at 02:00)'
    for written, field in zip(fields, _FIELDS, strict=True):
        for part in written.split(","):
            if problem := _check_part(part, field):
                return f"{field.what}: {problem}"
    try:
        # Far enough ahead for every leap year; the result does not matter.
        next(moments_after(text, datetime(2000, 1, 1, tzinfo=UTC), UTC))
    except StopIteration:
        return "names a day that no month has"
    return None


def moments_after(text: str, moment: datetime, zone: tzinfo) -> Iterator[datetime]:
    """The moments (aware, UTC) after `moment` that a valid expression matches on the clocks of `zone`.

    Moments in the hour that clocks skip in spring are not lost: they occur right after the change.
    Of the repeated hour in autumn the first one counts. An expression with a star for minutes or hours
    follows elapsed hours. (As Debian's cron does.)
    """
    local = moment.astimezone(zone)
    try:
        moments = CronSim(_plain(text), local)
    except CronSimError:
        return
    for local_moment in moments:
        # Around a clock change the arithmetic on local times may begin too early.
        if (passed := local_moment.astimezone(UTC)) > moment:
            yield passed


def _plain(text: str) -> str:
    """The expression in a form that `cronsim` reads as robfig/cron reads the original.

    In robfig/cron a star frees a day field only if it means all days: `*/2` restricts it, and a whole star
    anywhere in a list frees it. And `?` is a star, while steps through the days of the week end on Saturday.
    """
    return " ".join(
        _plain_field(written, field) for written, field in zip(text.split(), _FIELDS, strict=True)
    )


def _plain_field(written: str, field: _Field) -> str:
    parts = written.replace("?", "*").split(",")
    if any(part in ("*", "*/1") for part in parts):
        return "*"
    return ",".join(_plain_part(part, field) for part in parts)


def _plain_part(part: str, field: _Field) -> str:
    span, slash, step = part.partition("/")
    if not slash or field not in _FIELDS[2:]:
        return part
    last = 6 if field is _FIELDS[4] else field.high
    if span == "*":
        span = f"{field.low}-{last}"
    elif "-" not in span:
        first = _number(span, field)
        span = f"{span}-{max(last, first or 0)}"
    return f"{span}/{step}"


def _check_part(part: str, field: _Field) -> str | None:
    span, slash, step = part.partition("/")
    if slash and not (_is_number(step) and int(step) > 0):
        return f'"{part}" needs a number above 0 after the slash'
    if span in ("*", "?"):
        return None
    first, dash, last = span.partition("-")
    ends = [_number(end, field) for end in ((first, last) if dash else (first,))]
    if any(end is None or not field.low <= end <= field.high for end in ends):
        return f'"{part}" is not between {field.low} and {field.high}'
    if dash and ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
        return f'"{part}" begins after its end'
    return None


def _number(text: str, field: _Field) -> int | None:
    return int(text) if _is_number(text) else field.names.get(text.lower())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 4
