"""Which Certificates go first when more of them are due than can be worked on."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime

from certwright.kube.api.meta import ObjectKey

_AN_HOUR_S = 3600.0
# A certificate that does not exist yet is as urgent as one that expires after this time.
_A_DAY_S = 24 * _AN_HOUR_S


def by_expiry(
    ends_at: Callable[[ObjectKey], int], now: Callable[[], datetime]
) -> Callable[[ObjectKey], float]:
    """The rank of a Certificate: 0 if its certificate expires within an hour, 1 within two, 2 within four …
    So coarse that namespaces can take turns among those that are as urgent."""

    def rank(key: ObjectKey) -> float:
        moment = ends_at(key)
        left_s = moment - now().timestamp() if moment else _A_DAY_S
        return max(0, math.ceil(math.log2(max(left_s, 1.0) / _AN_HOUR_S)))

    return rank
