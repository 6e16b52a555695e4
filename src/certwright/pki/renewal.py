"""When a certificate is renewed.

Source: cert-manager `pkg/util/pki/renewaltime.go`.
"""

from __future__ import annotations

from datetime import datetime, timedelta


def renewal_time(
    not_before: datetime,
    not_after: datetime,
    renew_before: timedelta | None = None,
    renew_before_percentage: int | None = None,
) -> datetime:
    """The moment, in whole seconds, at which a certificate with these (aware) dates is renewed.

    That is `renew_before` before its end; or, where that is None, that percentage of its actual lifetime
    before its end; or a third of its lifetime before its end. What would lie before the certificate begins
    (an issuer gave it a shorter life than was asked for), and a percentage outside 1 to 99, count as not
    given. The result is never before `not_before`, nor after `not_after`.
    """
    lifetime = max(not_after - not_before, timedelta(0))
    wanted = _wanted(lifetime, renew_before, renew_before_percentage)
    if wanted is None or not timedelta(0) < wanted < lifetime:
        wanted = lifetime / 3
    return max((not_after - wanted).replace(microsecond=0), min(not_before, not_after))


def _wanted(
    lifetime: timedelta, renew_before: timedelta | None, renew_before_percentage: int | None
) -> timedelta | None:
    if renew_before is not None:
        return renew_before
    if renew_before_percentage is not None and 0 < renew_before_percentage < 100:
        # In integers: a float would be off by microseconds for a life of years.
        return lifetime * renew_before_percentage // 100
    return None
