"""Counts the requests to ACME servers, for `/metrics`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    # Loaded with the first ACME issuer.
    from certwright.acme.protocol.client import Told

QUANTILES: Final = (0.5, 0.9, 0.99)
_RECENT = 256


class Kind(NamedTuple):
    """Requests that are counted together; `status` is 0 where no answer came."""

    scheme: str
    host: str
    action: str
    method: str
    status: str


@dataclass(slots=True)
class Tally:
    """How many there were, the seconds that they took together, and those of the last 256."""

    count: int = 0
    seconds: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def quantiles(self) -> list[tuple[float, float]]:
        """Of the last ones: share, seconds."""
        held = sorted(self.recent)
        return [(share, held[min(int(share * len(held)), len(held) - 1)]) for share in QUANTILES if held]


class Traffic:
    """What is asked of ACME servers by this process."""

    def __init__(self) -> None:
        self._tallies: dict[Kind, Tally] = {}

    def observe(self, told: Told) -> None:
        """Count one request."""
        # Cut by hand: each order has URLs of its own, which `urlsplit` would have to look through.
        scheme, _, rest = told.url.partition("://")
        host = rest.partition("/")[0].partition("?")[0]
        kind = Kind(scheme, host, str(told.action), told.method, str(told.status))
        tally = self._tallies.get(kind)
        if tally is None:
            tally = self._tallies[kind] = Tally()
        tally.count += 1
        tally.seconds += told.seconds
        tally.recent.append(told.seconds)

    def take(self) -> list[tuple[Kind, Tally]]:
        """The present numbers, which later requests do not change."""
        return [
            (kind, Tally(tally.count, tally.seconds, tally.recent.copy()))
            for kind, tally in sorted(self._tallies.items())
        ]
