"""What the circuit breaker of one issuer stores between two attempts, and what follows from that alone.

`breaker_decisions.py` reads it, and changes nothing; `breaker.py` changes it.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from certwright.controllers.retry.in_flight import InFlight
from certwright.controllers.retry.probing import Probing
from certwright.controllers.retry.tries import PERIOD, Tries
from certwright.controllers.retry.waiting_list import WaitingList
from certwright.resources.causes import Cause

K = TypeVar("K", bound=Hashable)

ATTEMPTS_PER_HOUR: Final = 12
ENOUGH: Final = 3
"""This number of certificates fail together only if their issuer fails."""
_HOUR: Final = timedelta(hours=1)


class State(StrEnum):
    """States of a breaker; the values are shown to users."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class Slot(NamedTuple):
    """When a certificate continues after the issuer is back, and when it expires."""

    at: datetime
    not_after: datetime


class Failure(NamedTuple):
    """Why the last attempt of a certificate failed; `is_taken`: after the issuer had taken the request;
    `has_left`: it does not wait for this issuer any more."""

    cause: Cause
    is_taken: bool
    at: datetime
    has_left: bool = False


class Turn(NamedTuple, Generic[K]):
    """The certificate that makes the trial attempt, and since when it may."""

    key: K
    since: datetime


class BreakerState(Generic[K]):
    """The state of one issuer's breaker. `K` names a certificate.

    `attempts_per_hour` 0 switches the breaker off. `has_probe`: the caller sends probes when `probe_at` says
    so. Raises `ValueError` where the number is negative. Times are aware.
    """

    def __init__(self, attempts_per_hour: int = ATTEMPTS_PER_HOUR, *, has_probe: bool = False) -> None:
        if attempts_per_hour < 0:
            raise ValueError("the number of attempts per issuer and hour must not be negative")
        self.limit = attempts_per_hour
        self.has_probe = has_probe
        self.pause = _HOUR / attempts_per_hour if attempts_per_hour else timedelta(0)
        """The shortest regular time between two trials."""
        # In a first rush not all of an hour's attempts are spent: some are left to find out when it is back.
        least = 1 if has_probe else min(attempts_per_hour, ENOUGH)
        self.at_once = max(attempts_per_hour // 2, least)
        """How many attempts may be in flight before the issuer has answered one."""
        self.enough = min(ENOUGH, self.at_once)
        """How many failing certificates open the breaker."""

        self.tries: Tries[K] = Tries(max(attempts_per_hour, 1))
        self.in_flight: InFlight[K] = InFlight(self.at_once)
        self.failing: dict[K, Failure] = {}
        self.failures_in_a_row = 0
        self.is_doubted = False
        """Whether an attempt has failed, also before a restart, and none succeeded since: the next attempt
        MUST be recorded before it is made."""
        self.last_success: datetime | None = None
        """When the issuer last issued, or took a request."""
        self.message = ""
        """What the last failure was, in a sentence."""

        self.opened_at: datetime | None = None
        """Since when it is open."""
        self.not_before: datetime | None = None
        """The time that the issuer named (`Retry-After`)."""
        self.probing = Probing()
        self.trials = 0
        self.turn: Turn[K] | None = None
        self.called: dict[K, datetime] = {}
        """Certificates chosen for the next trial that have not asked since, and when they were notified; the
        first of them to ask makes it."""
        self.taken_keys: set[K] = set()
        """Certificates whose requests the issuer has taken while it fails for others."""

        self.queue: WaitingList[K] = WaitingList()
        self.slots: dict[K, Slot] = {}
        self.gap = self.slow_gap = timedelta(0)
        self.recovered_at: datetime | None = None
        """When the breaker last closed."""

    @property
    def is_open(self) -> bool:
        """Whether the issuer fails, so that at most one certificate at a time tries it."""
        return self.opened_at is not None

    @property
    def state(self) -> State:
        """The state, for people."""
        if not self.is_open:
            return State.CLOSED
        return State.OPEN if self.probing.at is not None else State.HALF_OPEN

    @property
    def cause(self) -> Cause:
        """Why attempts have failed since the last success; the commonest cause if several."""
        causes = [failure.cause for failure in self.failing.values()]
        return max(causes, key=causes.count, default=Cause.UNAVAILABLE)

    @property
    def waiting(self) -> int:
        """How many certificates wait because of the issuer."""
        return len(self.queue) + len(self.slots)

    @property
    def attempts(self) -> tuple[datetime, ...]:
        """The attempts since the last success, at most those of an hour's budget, oldest first."""
        return self.tries.times

    @property
    def probe_at(self) -> datetime | None:
        """When the next probe is due; None: none is needed."""
        return self.probing.at if self.is_open else None

    def is_unused(self, now: datetime) -> bool:
        """Whether a new breaker would do the same.

        The issuer has neither issued nor failed for a certificate that exists, none waits for it or is being
        issued, and none has tried it in the last hour.
        """
        is_tried = self.tries.last is not None and now - self.tries.last < PERIOD
        is_known = self.is_open or self.last_success is not None
        return not (is_known or is_tried or self.failing or self.waiting or self.called or self.in_flight)

    def failed_at(self, key: K) -> datetime | None:
        """When the certificate's last attempt failed, if the issuer has not worked since."""
        failure = self.failing.get(key)
        return failure.at if failure is not None else None

    def has_turn(self, key: K) -> bool:
        """Whether the certificate makes the trial attempt, if no other has taken its turn."""
        return self.turn is not None and self.turn.key == key

    def check_at(self, key: K) -> datetime | None:
        """When a waiting certificate asks again; None if it does not wait."""
        slot = self.slots.get(key)
        return slot.at if slot is not None else self.queue.check_at(key)

    def is_called(self, key: K, now: datetime) -> bool:
        """Whether the breaker chose this certificate as its trial, which ends the certificate's own pause."""
        slot = self.slots.get(key)
        return key in self.called or (slot is not None and slot.at <= now)
