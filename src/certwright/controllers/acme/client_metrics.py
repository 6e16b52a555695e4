"""Metrics of the requests to ACME servers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    # Loaded with the first ACME issuer.
    from certwright.acme.protocol.client import RequestRecord

QUANTILES: Final = (0.5, 0.9, 0.99)
OTHERS: Final = "others"
"""The host of requests to further servers than are counted one by one."""
_RECENT = 256
_MOST = 1000
"""Kinds of requests with a host of their own: tenants choose hosts, and may choose another each second."""


class Kind(NamedTuple):
    """Requests that are counted together; `status` is 0 where no answer came."""

    scheme: str
    host: str
    action: str
    method: str
    status: str


@dataclass(slots=True)
class Tally:
    """The number of requests, their total seconds, and the seconds of the last 256."""

    count: int = 0
    seconds: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def quantiles(self) -> list[tuple[float, float]]:
        """Of the last ones: share, seconds."""
        ordered = sorted(self.recent)
        return [
            (share, ordered[min(int(share * len(ordered)), len(ordered) - 1)])
            for share in QUANTILES
            if ordered
        ]


class Traffic:
    """The requests of this process to ACME servers."""

    def __init__(self) -> None:
        self._tallies: dict[Kind, Tally] = {}

    def observe(self, record: RequestRecord) -> None:
        """Count one request."""
        # Split by hand: each order has other URLs, which `urlsplit` would have to parse in full.
        scheme, _, rest = record.url.partition("://")
        host = rest.partition("/")[0].partition("?")[0]
        kind = Kind(scheme, host, str(record.action), record.method, str(record.status))
        tally = self._tallies.get(kind)
        if tally is None:
            if len(self._tallies) >= _MOST:
                kind = kind._replace(scheme="", host=OTHERS)
            tally = self._tallies.setdefault(kind, Tally())
        tally.count += 1
        tally.seconds += record.seconds
        tally.recent.append(record.seconds)

    def take(self) -> list[tuple[Kind, Tally]]:
        """The present numbers, which later requests do not change."""
        return [
            (kind, Tally(tally.count, tally.seconds, tally.recent.copy()))
            for kind, tally in sorted(self._tallies.items())
        ]
