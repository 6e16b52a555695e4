"""Timing of a Lease."""

from __future__ import annotations

from datetime import timedelta

import msgspec

# Without it, candidates that poll at the same moments would all try together; client-go's JitterFactor.
JITTER = 0.2


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Lease timing: its duration, the renew deadline after which its holder gives up, and the period of
    renewals and of the others' polls. The defaults are cert-manager's."""

    duration: timedelta = timedelta(seconds=60)
    renew_deadline: timedelta = timedelta(seconds=40)
    retry_period: timedelta = timedelta(seconds=15)

    def check(self) -> None:
        """Raises `ValueError`, with a sentence, for terms under which two processes could own a Lease at the
        same time."""
        if self.retry_period <= timedelta(0):
            raise ValueError("the retry period must be longer than 0s")
        if self.renew_deadline <= self.retry_period * (1 + JITTER):
            raise ValueError(
                "the renew deadline must be longer than 1.2 retry periods, so that one renewal may fail"
            )
        if self.duration <= self.renew_deadline:
            raise ValueError("the lease duration must be longer than the renew deadline")
        if self.duration < timedelta(seconds=1):
            raise ValueError("the lease duration must be one second at least")


DEFAULT_TERMS = Terms()
