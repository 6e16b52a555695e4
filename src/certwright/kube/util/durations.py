"""Durations as Go writes them (`time.ParseDuration`): `2160h`, `1h30m`, `1.5h`, `300ms`;
exponential backoff."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek letter mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MAX_NS = 2**63 - 1
_LONGEST = 200
"""Characters. Each costs time, and tenants write durations into annotations and fields of any length."""


def parse_duration(text: str) -> timedelta:
    """Read a Go duration.

    Raises `ValueError` with a sentence that names the text and shows what a duration looks like.
    Precision below a microsecond is dropped, since `timedelta` cannot hold it.
    """
    if len(text) > _LONGEST:
        raise ValueError(f'a duration of {len(text)} characters is too long; write e.g. "2160h"')
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return timedelta(0)
    total, at = Decimal(0), 0
    while match := _PART.match(rest, at):
        total += Decimal(match[1]) * _UNITS_NS[match[2]]
        at = match.end()
    if at == 0 or at != len(rest):
        raise ValueError(f'{text!r} is not a duration; write e.g. "2160h", "1h30m" or "90s"')
    if total > _MAX_NS:
        raise ValueError(f"{text!r} is longer than the longest duration, about 292 years")
    return sign * timedelta(microseconds=int(total / 1000))


def format_duration(value: timedelta) -> str:
    """Write a duration as Go's `Duration.String` does: `2160h0m0s`, `1m30s`, `1.5s`, `0s`."""
    micros = value // timedelta(microseconds=1)
    if micros == 0:
        return "0s"
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    if micros < 1_000:
        return f"{sign}{micros}µs"
    if micros < 1_000_000:
        return f"{sign}{_trim(Decimal(micros) / 1_000)}ms"
    minutes, rest = divmod(micros, 60_000_000)
    seconds = f"{_trim(Decimal(rest) / 1_000_000)}s"
    if minutes == 0:
        return sign + seconds
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def _trim(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


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
