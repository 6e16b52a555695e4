"""Renewal time of a certificate, and the maintenance windows in which it may be renewed.

Source: cert-manager `pkg/util/pki/renewaltime.go`; the spreading is ours (docs/renewal.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from certwright.kit.cron import moments_after

LONGEST_SPREAD: Final = timedelta(days=1)
"""With an hour, a million certificates of 90 days that were issued in one hour would be renewed within two or
three hours for years."""
LONGEST_REQUESTED_SPREAD: Final = timedelta(hours=1)
"""Of a moment that the user has chosen."""
# A window may open every minute and stay open for weeks. Examining this many openings takes 10 ms; the
# answer is then still correct, but a later opening might last longer.
_MOST_OPENINGS = 1000
_REMEMBERED = 4096


def renewal_time(
    not_before: datetime,
    not_after: datetime,
    renew_before: timedelta | None = None,
    renew_before_percentage: int | None = None,
) -> datetime:
    """The renewal time, in whole seconds, of a certificate with these (aware) dates.

    The time is `renew_before` before the expiry; without it, that percentage of the actual lifetime before
    the expiry; without both, a third of the lifetime before the expiry. A value before `not_before` (the
    issuer chose a shorter lifetime than requested), and a percentage outside 1 to 99, count as missing. The
    result lies between `not_before` and `not_after`.
    """
    lifetime = max(not_after - not_before, timedelta(0))
    before_expiry = _requested(lifetime, renew_before, renew_before_percentage)
    if before_expiry is None or not timedelta(0) < before_expiry < lifetime:
        before_expiry = lifetime / 3
    return max((not_after - before_expiry).replace(microsecond=0), min(not_before, not_after))


def _requested(
    lifetime: timedelta, renew_before: timedelta | None, renew_before_percentage: int | None
) -> timedelta | None:
    if renew_before is not None:
        return renew_before
    if renew_before_percentage is not None and 0 < renew_before_percentage < 100:
        # In integers: a float would be off by microseconds for a lifetime of years.
        return lifetime * renew_before_percentage // 100
    return None


def spread(
    not_before: datetime, moment: datetime, not_after: datetime, longest: timedelta = LONGEST_SPREAD
) -> timedelta:
    """The maximum delay, in whole seconds, of the renewal planned for `moment`, so that certificates issued
    together are not renewed together.

    At most `longest`, a fiftieth of the certificate's lifetime remaining then, and a tenth of the lifetime
    passed then: close to zero near its expiry, or right after its issuance.
    """
    room = min(longest, (not_after - moment) / 50, (moment - not_before) / 10)
    return timedelta(seconds=max(room // timedelta(seconds=1), 0))


def share(seed: str) -> float:
    """A number in [0, 1) that is the same for the same `seed` on every machine, and uniformly distributed
    over seeds."""
    digest = hashlib.blake2b(seed.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32


def put_off(moment: datetime, by: timedelta, seed: str) -> datetime:
    """`moment`, delayed by the `share` of `seed` of `by`, in whole seconds."""
    seconds = int(by / timedelta(seconds=1) * share(seed))
    return moment + timedelta(seconds=seconds) if seconds else moment


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
    last = first
    for opening in openings:
        if opening > moment:
            break
        last = opening
    return Slot(moment, last + window.length - moment)


def _openings(window: Window, moment: datetime) -> Iterator[datetime]:
    try:
        from zoneinfo import ZoneInfo  # 0.3 MB; few certificates have windows

        zone = ZoneInfo(window.zone)
    except (KeyError, OSError) as error:
        raise ValueError(f'there is no time zone "{window.zone}"') from error
    return moments_after(window.cron, moment, zone)
