"""Whether a text is a cron expression of five fields.

Source: crontab(5); names of months and days as in the reference implementation of cert-manager's parser,
robfig/cron.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
    """Why `text` is no cron expression, or None."""
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f'must have five fields, not {len(fields)}; write for instance "0 2 * * 6" (Saturday at 02:00)'
    for written, field in zip(fields, _FIELDS, strict=True):
        for part in written.split(","):
            if problem := _check_part(part, field):
                return f"{field.what}: {problem}"
    return None


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
