"""Probe times of an issuer that fails. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from certwright.pki.renewal import share

# A recovery is seen after about half of the length of the outage, and after two minutes at most.
_FIRST: Final = timedelta(seconds=1)
_FACTOR: Final = 1.5
_LONGEST: Final = timedelta(minutes=2)


@dataclass(slots=True)
class Probing:
    """`at` is the next probe; None: none is needed, or the last one was answered. `failures` in a row.

    Intervals differ by a tenth with the `seed`, so that the probes of issuers of one CA do not coincide.
    """

    seed: str = ""
    at: datetime | None = None
    failures: int = 0

    def start(self, now: datetime) -> None:
        """Probe soon."""
        self.failures = 0
        self.at = now + self._interval()

    def failed(self, now: datetime) -> None:
        """The probe was not answered."""
        self.failures += 1
        self.at = now + self._interval()

    def stop(self) -> None:
        """No probe is needed."""
        self.at, self.failures = None, 0

    def _interval(self) -> timedelta:
        interval = min(_FIRST * _FACTOR ** min(self.failures, 64), _LONGEST)
        return interval * (0.9 + 0.2 * share(f"{self.seed}/{self.failures}"))
