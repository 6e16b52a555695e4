"""Renewal time of a certificate.

Source: cert-manager `pkg/util/pki/renewaltime.go`; the spreading is ours (docs/renewal.md).
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

LONGEST_SPREAD: Final = timedelta(days=1)
"""With an hour, a million certificates of 90 days that were issued in one hour would be renewed within two or
three hours for years."""
LONGEST_REQUESTED_SPREAD: Final = timedelta(hours=1)
"""Of a moment that the user has chosen."""


def renewal_time(
    not_before: datetime,
    not_after: datetime,
    renew_before: timedelta | None = None,
    renew_before_percentage: int | None = None,
) -> datetime:
    """The moment, in whole seconds, at which a certificate with these (aware) dates is renewed.

    That is `renew_before` before its expiry; without it, that percentage of its actual lifetime before its
    expiry; without both, a third of its lifetime before its expiry. A value that would lie before
    `not_before` (the issuer chose a shorter lifetime than requested), and a percentage outside 1 to 99, count
    as missing. The result is never before `not_before`, nor after `not_after`.
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
