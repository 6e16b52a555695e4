"""The circuit breaker of one issuer. Pure: no clock, no I/O.

    closed      attempts go through
    open        the issuer fails: attempts wait, and a probe is sent at growing intervals
    half-open   a probe was answered: one trial attempt at a time goes through

An *attempt* is what an issuer counts: a newOrder of ACME (RFC 8555 §7.4), a CertificateRequest of an
external issuer. A *probe* costs the issuer nothing: a GET of the ACME directory. An external issuer has no
probe; there the trial attempts probe it.

Only failures of the issuer itself open a breaker: no answer, 5xx, a rate limit. A refusal of a name or of a
request is an answer. The first success closes it, and the certificates that waited go on spread out, those
that expire first before the others.

At most `attempts_per_hour` attempts reach a failing issuer in any hour, whatever the number of certificates;
those that were in flight when it began to fail, and those before a restart, are counted.

Used by `gate.py` and by the fleet simulator (`bench/fleet.py`). docs/backoff.md explains it for users.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from certwright.controllers.retry.backoff import Hold
from certwright.controllers.retry.in_flight import InFlight
from certwright.controllers.retry.probing import Probing
from certwright.controllers.retry.tries import Tries
from certwright.controllers.retry.waiting_list import WaitingList
from certwright.resources.causes import Cause

K = TypeVar("K", bound=Hashable)

ATTEMPTS_PER_HOUR: Final = 12
FAILING: Final = "is failing; one certificate at a time tries it, those that expire first before others"
AWAY: Final = "is failing; it is probed at growing intervals, and issuance continues when it works again"
BACK: Final = "works again; the certificates waiting for it continue one after the other"
UNPROVEN: Final = "has not answered the attempts in flight yet"
SPENT: Final = "has been tried as often as allowed in an hour and has not issued anything"
"""Why a certificate waits, as said of an issuer."""


class State(StrEnum):
    """States of a breaker; the values are shown to users."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


_HOUR: Final = timedelta(hours=1)
_SECOND: Final = timedelta(seconds=1)
# So many certificates fail together only if their issuer fails; or one fails so often in a row.
_ENOUGH: Final = 3
_IN_A_ROW: Final = 4
_ISSUERS_FAULT: Final = frozenset({Cause.UNAVAILABLE, Cause.RATE_LIMITED, Cause.UNKNOWN})
# A Retry-After beyond this is cut: others depend on the issuer.
_LONGEST_OBEYED: Final = timedelta(hours=32)
# A certificate that was let through and never asked: it was deleted, or waits for an approval.
_RESERVED: Final = timedelta(minutes=5)
# How long a trial of an issuer that can be probed keeps the others waiting if nothing comes of it.
_TRIAL_LASTS: Final = timedelta(minutes=1)
# Waiting certificates check again after this time although a notification was missed.
_CHECK_AGAIN: Final = timedelta(hours=6)
# Pauses between two of the certificates that continue after the issuer is back, and the longest spread.
_GAP: Final = timedelta(seconds=0.5)
_SPREAD: Final = _HOUR
_LONGEST_SPREAD: Final = timedelta(days=1)
# Trials are at most this part of the remaining life of the certificate that expires next apart.
_PARTS: Final = 8
# Pauses before the first trials of an issuer whose probes are answered; then those of the hour's budget.
_QUICK: Final = tuple(timedelta(seconds=seconds) for seconds in (4, 16, 64))
_LONGEST_PAUSE: Final = timedelta(minutes=20)
# So many attempts of an hour are not spent by what was in flight when the issuer began to fail.
_TRIALS_KEPT: Final = 3


class Released(NamedTuple, Generic[K]):
    """A certificate that may ask again at `at`."""

    key: K
    at: datetime


class _Slot(NamedTuple):
    """When a certificate continues after the issuer is back, and when it expires."""

    at: datetime
    not_after: datetime


class _Failure(NamedTuple):
    """Why the last attempt of a certificate failed; `is_taken`: after the issuer had taken the request."""

    cause: Cause
    is_taken: bool
    at: datetime


class Circuit(Generic[K]):
    """The breaker of one issuer. `K` names a certificate.

    `attempts_per_hour` 0 switches it off. `has_probe`: the caller sends probes when `probe_at` says so, and
    reports them to `probed`. Raises `ValueError` where the number is negative. Times are aware.
    """

    def __init__(self, attempts_per_hour: int = ATTEMPTS_PER_HOUR, *, has_probe: bool = False) -> None:
        if attempts_per_hour < 0:
            raise ValueError("the number of attempts per issuer and hour must not be negative")
        self._limit = attempts_per_hour
        self._has_probe = has_probe
        self._pause = _HOUR / attempts_per_hour if attempts_per_hour else timedelta(0)
        # In a first rush not all of an hour's attempts are spent: some are left to find out when it is back.
        least = 1 if has_probe else min(attempts_per_hour, _ENOUGH)
        self._at_once = max(attempts_per_hour // 2, least)
        self._enough = min(_ENOUGH, self._at_once)
        self._tries: Tries[K] = Tries(max(attempts_per_hour, 1))
        self._failing: dict[K, _Failure] = {}
        self._in_a_row = 0
        self._is_doubted = False
        self._opened_at: datetime | None = None
        self._probing = Probing()
        self._trials = 0
        self._not_before: datetime | None = None
        self._taken: set[K] = set()
        self._called: set[K] = set()
        self._in_flight: InFlight[K] = InFlight(self._at_once)
        self._reserved: tuple[K, datetime] | None = None
        self._waiting: WaitingList[K] = WaitingList()
        self._slots: dict[K, _Slot] = {}
        self._gap = self._slow = timedelta(0)
        self.last_success: datetime | None = None
        """When the issuer last issued, or took a request."""
        self.recovered_at: datetime | None = None
        """When the breaker last closed."""
        self.message = ""
        """What the last failure was, in a sentence."""

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the issuer fails, so that at most one certificate at a time tries it."""
        return self._opened_at is not None

    @property
    def state(self) -> State:
        """The state, for people."""
        if not self.is_open:
            return State.CLOSED
        return State.OPEN if self._probing.at is not None else State.HALF_OPEN

    @property
    def opened_at(self) -> datetime | None:
        """Since when it is open."""
        return self._opened_at

    @property
    def cause(self) -> Cause:
        """Why attempts have failed since the last success; the commonest cause if several."""
        causes = [failure.cause for failure in self._failing.values()]
        return max(causes, key=causes.count, default=Cause.UNAVAILABLE)

    @property
    def not_before(self) -> datetime | None:
        """The time that the issuer named (`Retry-After`)."""
        return self._not_before

    @property
    def is_doubted(self) -> bool:
        """Whether an attempt has failed, also before a restart, and none succeeded since: the next attempt
        MUST be recorded before it is made."""
        return self._is_doubted

    @property
    def waiting(self) -> int:
        """How many certificates wait because of the issuer."""
        return len(self._waiting) + len(self._slots)

    @property
    def attempts(self) -> tuple[datetime, ...]:
        """The attempts since the last success, at most those of an hour's budget, oldest first."""
        return self._tries.times

    def is_called(self, key: K, now: datetime) -> bool:
        """Whether the breaker chose this certificate as its trial, which ends the certificate's own pause."""
        slot = self._slots.get(key)
        return key in self._called or (slot is not None and slot.at <= now)

    def check_at(self, key: K) -> datetime | None:
        """When a waiting certificate asks again; None if it does not wait."""
        slot = self._slots.get(key)
        return slot.at if slot is not None else self._waiting.check_at(key)

    # --- questions ------------------------------------------------------------------------------------------

    def may_begin(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """Whether an issuance may begin (None), or why and until when it waits. Idempotent.

        `not_after` is the expiry of its present certificate.
        """
        if not self._limit:
            return None
        if self.is_open:
            return self._may_try(key, not_after, now)
        slot = self._slots.get(key)
        if slot is not None and now < slot.at:
            return Hold(slot.at, BACK)
        self._slots.pop(key, None)
        return None

    def may_ask(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """Whether an attempt may be made (None). The caller MUST report it to `asked`.

        As `may_begin`; and while an issuer has not answered, only half of an hour's attempts may be in flight
        together. The more it issues, the more.
        """
        if not self._limit or self._in_flight.is_fresh(key, now):
            return None
        if (hold := self.may_begin(key, not_after, now)) is not None or self.is_open:
            return hold
        room, free_at = self._in_flight.room(len(self._failing), now), self._tries.free_at(now)
        if self._is_doubted and not self._in_flight.has_succeeded and free_at > now:
            return self._hold(key, not_after, free_at, SPENT)
        if room > 0:
            self._waiting.remove(key)
            return None
        return self._hold(key, not_after, now + self._pause, UNPROVEN, is_exact=False)._replace(is_brief=True)

    def may_go_on(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """Whether the issuer may be asked about a request that it has taken (None): always while it works;
        else only by the certificate whose trial it is, and that is an attempt."""
        slot = self._slots.get(key)
        if slot is not None and slot.at <= now:
            del self._slots[key]
        if not self.is_open or key in self._taken or self._in_flight.is_fresh(key, now):
            return None
        if (hold := self.may_begin(key, not_after, now)) is None:
            self.asked(key, now)
        return hold

    def failed_at(self, key: K) -> datetime | None:
        """When the certificate's last attempt failed, if the issuer has not worked since."""
        failure = self._failing.get(key)
        return failure.at if failure is not None else None

    def may_join(self, key: K, not_after: datetime | None, now: datetime) -> bool:
        """Whether a certificate that has another issuer to go to may use this one: it works, or this is its
        next trial. One that may not does not wait here."""
        if not self._limit or not self.is_open:
            return True
        has_waited = key in self._waiting
        hold = self.may_begin(key, not_after, now)
        if hold is not None and not has_waited:
            self._waiting.remove(key)
        return hold is None

    # --- what happens ---------------------------------------------------------------------------------------

    def asked(self, key: K, now: datetime) -> None:
        """An attempt is made. Idempotent while it is in flight."""
        if not self._limit or self._in_flight.is_fresh(key, now):
            return
        self._in_flight.add(key, now)
        self._tries.add(key, now)
        self._waiting.remove(key)
        self._called.discard(key)
        if self._reserved is not None and self._reserved[0] == key:
            self._reserved = (key, now)

    def recall(self, key: K | None, at: datetime) -> None:
        """An attempt was made before a restart. MUST be called in order, before anything else."""
        if self._limit:
            self._is_doubted = True
            self._tries.add(key, at)

    def recall_untold(self, count: int, now: datetime) -> None:
        """So many attempts may have been in flight at a crash, unrecorded: at most as many as may be in
        flight together, and none while the issuer was known to fail."""
        if self._limit and not self._failing and not self.is_open:
            for _ in range(min(count, self._at_once)):
                self._is_doubted = True
                self._tries.add(None, now)

    def reopen(self, since: datetime, not_before: datetime | None, now: datetime) -> None:
        """It was open before a restart, or it is in another replica."""
        if self._limit and not self.is_open:
            self._is_doubted = True
            self._not_before = min(not_before, now + _LONGEST_OBEYED) if not_before is not None else None
            self._open(now)
            self._opened_at = since
            if now - since > sum(_QUICK, timedelta(0)):
                # It had its quick trials.
                self._trials = len(_QUICK) + 1

    def failed(
        self,
        key: K,
        cause: Cause,
        now: datetime,
        until: datetime | None = None,
        *,
        is_taken: bool = False,
        message: str = "",
    ) -> list[Released[K]]:
        """An attempt failed because of the issuer. `until`: the issuer's own Retry-After. `is_taken`: the
        issuer had taken the request. Returns which certificates to notify, and when."""
        if cause not in _ISSUERS_FAULT:
            # An approver's denial says nothing of the issuer; an impossible request is the issuer's answer.
            return self.withdrawn(key, now) if cause is Cause.DENIED else self.answered(key, now)
        if not self._limit:
            return []
        was_trial = self.is_open and key in self._in_flight
        self._end(key)
        self._failing[key] = _Failure(cause, is_taken, now)
        self._is_doubted = True
        self.message = message or self.message
        self._in_a_row += 1
        if until is not None and cause is Cause.UNAVAILABLE:
            self._not_before = min(until, now + _LONGEST_OBEYED)
        is_enough = self._has_probe and self._in_a_row >= _IN_A_ROW
        if not self.is_open and (is_enough or len(self._failing) >= self._enough):
            self._open(now)
            if self._has_probe:
                self._tries.keep(max(self._limit - _TRIALS_KEPT, self._limit // 2))
        elif was_trial:
            self._trials += 1
            if self._has_probe:
                self._probing.start(now)
        if self.is_open and self._has_probe:
            # Its order waits for the issuer like the others: it is notified with them.
            for each in self._failing if key not in self._waiting else ():
                self._hold(each, None, now, AWAY)
        return []

    def answered(self, key: K, now: datetime, *, is_taken: bool = True) -> list[Released[K]]:
        """The issuer has refused a request for good: it works. `is_taken`: one that it had taken before."""
        return self._works(key, now, is_taken=is_taken)

    def taken(self, key: K, now: datetime) -> list[Released[K]]:
        """The issuer has taken the request: it works as far as new requests go. What follows depends on the
        names, and may be asked about even while the breaker is open for others."""
        is_open_for_more = any(failure.is_taken for failure in self._failing.values())
        released = self._works(key, now, is_taken=False)
        if is_open_for_more and self.is_open:
            self._taken.add(key)
        return released

    def withdrawn(self, key: K, now: datetime) -> list[Released[K]]:
        """The attempt did not reach the issuer."""
        self._end(key)
        self._tries.take_back(key)
        return self._let_on(now) if not self.is_open else []

    def succeeded(self, key: K, now: datetime) -> list[Released[K]]:
        """The issuer has issued. Returns which certificates to notify, and when."""
        self._slots.pop(key, None)
        self._in_flight.succeeded(now)
        released = self._works(key, now, is_taken=True)
        self._waiting.remove(key)
        return released

    def leave(self, key: K) -> None:
        """The certificate goes to another issuer: it neither waits here nor has the next trial."""
        self._end(key)
        self._waiting.remove(key)
        self._called.discard(key)
        self._slots.pop(key, None)

    def forget(self, key: K) -> None:
        """The certificate does not exist any more."""
        self.leave(key)
        self._failing.pop(key, None)

    def resume(self, waited: Iterable[tuple[K, datetime | None]], now: datetime) -> list[Released[K]]:
        """After a restart: the certificates that were waiting, with their expiries, go on spread out if the
        issuer works by now."""
        if self.is_open:
            return []
        for key, not_after in waited:
            self._hold(key, not_after, now, BACK)
        return self._spread(now)

    def close(self, now: datetime) -> list[Released[K]]:
        """Another replica has seen the issuer work."""
        return self._close(now) if self.is_open else []

    # --- probes ---------------------------------------------------------------------------------------------

    @property
    def probe_at(self) -> datetime | None:
        """When the next probe is due; None: none is needed."""
        return self._probing.at if self.is_open else None

    def probed(self, now: datetime, *, is_answered: bool, message: str = "") -> list[Released[K]]:
        """A probe was sent. Returns which certificates may try the issuer, and when."""
        if not self.is_open or self._probing.at is None:
            return []
        self.message = message or self.message
        if is_answered:
            self._probing.stop()
            return self.call_trial(now)
        self._probing.failed(now)
        return []

    def trial_failed(self, now: datetime) -> None:
        """The trial of another replica has failed: the next one waits for a probe again."""
        if self.is_open and self._probing.at is None and self._has_probe:
            self._probing.start(now)

    def trial_at(self, now: datetime) -> datetime | None:
        """When the next trial attempt may be made; None: closed, or a probe has to be answered first."""
        if not self.is_open or self._probing.at is not None:
            return None
        if self._is_reserved(now):
            assert self._reserved is not None
            return self._reserved[1] + self._reservation()
        return self._next_trial(None, now)

    def call_trial(self, now: datetime) -> list[Released[K]]:
        """The certificates that may make the next trial, when it is due: the first of them to ask does."""
        at = self.trial_at(now)
        if at is None or (self._is_reserved(now) and at > now):
            return []
        first = [key for _, (_, key) in zip(range(_ENOUGH), self._waiting, strict=False)]
        self._called = set(first)
        return [Released(key, max(at, now)) for key in first]

    # --- trials ---------------------------------------------------------------------------------------------

    def _may_try(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        if self._reserved is not None and self._reserved[0] == key:
            return None
        if self._probing.at is not None:
            return self._hold(key, not_after, now + _CHECK_AGAIN, AWAY, is_exact=False)
        at = self._next_trial(not_after, now)
        before = self._waiting.add(key, not_after, now, has_failed=key in self._failing)
        is_first = before == 0 or key in self._called
        if now < at or self._is_reserved(now) or not (is_first or self._is_first_present(key, now)):
            is_exact = now < at and before == 0 and not self._is_reserved(now)
            until = (at if now < at else now + self._pause) + before * self._pause
            return self._hold(key, not_after, until, FAILING, is_exact=is_exact)
        self._waiting.remove(key)
        self._reserved = (key, now)
        return None

    def _is_first_present(self, key: K, now: datetime) -> bool:
        """Whether those before it in the line have missed their turn, or check again only later."""
        for _, other in list(self._waiting):
            if other == key:
                return True
            check_at = self._waiting.check_at(other)
            assert check_at is not None
            if check_at + 2 * self._pause < now:
                self._waiting.remove(other)
            elif check_at <= now:
                return False
        return True

    def _is_reserved(self, now: datetime) -> bool:
        """Whether a certificate has the turn. A trial may take long; one that never asks loses its turn."""
        return self._reserved is not None and now < self._reserved[1] + self._reservation()

    def _reservation(self) -> timedelta:
        assert self._reserved is not None
        if self._has_probe:
            return _TRIAL_LASTS
        return _HOUR if self._reserved[0] in self._in_flight else _RESERVED

    def _next_trial(self, not_after: datetime | None, now: datetime) -> datetime:
        """The first moment of the next trial, if its certificate expires at `not_after`.

        An issuer that can be probed gets a few trials in quick succession. Then the pauses double, from the
        shortest that keeps to the budget up to 20 minutes (without probes: an hour), by growing with the
        time for which the issuer has been failing: so a restart need not know how many there were.
        """
        last = self._tries.last
        if last is None or self._opened_at is None:
            return now
        longest = _LONGEST_PAUSE if self._has_probe else _HOUR
        pause = max(self._pause, min(last - self._opened_at, longest))
        if not self._has_probe and all(one.cause is Cause.UNKNOWN for one in self._failing.values()):
            # Perhaps it is about their names.
            pause = self._pause
        if (soonest := self._soonest(not_after, now)) is not None and soonest > last:
            pause = max(self._pause, min(pause, (soonest - last) / _PARTS))
        if self._has_probe and self._trials <= len(_QUICK):
            pause = _QUICK[self._trials - 1] if self._trials else timedelta(0)
        moments = [now, last + pause, self._tries.free_at(now)]
        if self._not_before is not None:
            moments.append(self._not_before)
        return max(moments)

    def _soonest(self, not_after: datetime | None, now: datetime) -> datetime | None:
        waiting = self._waiting.first_end_after(now)
        ends = [end for end in (not_after, waiting) if end is not None and end > now]
        return min(ends, default=None)

    # --- waiting --------------------------------------------------------------------------------------------

    def _hold(
        self, key: K, not_after: datetime | None, at: datetime, sentence: str, *, is_exact: bool = True
    ) -> Hold:
        before = self._waiting.add(key, not_after, at, has_failed=key in self._failing)
        if sentence == SPENT:
            at = at + before * self._pause
            is_exact = before == 0
        self._waiting.set_check(key, _whole(at))
        return Hold(_whole(at), sentence, is_exact)

    # --- opening and closing --------------------------------------------------------------------------------

    def _open(self, now: datetime) -> None:
        """If those that have waited are still going on: they were too fast for the issuer."""
        self._opened_at = now
        self._in_flight.doubt()
        self._trials = 0
        if self._has_probe:
            self._probing = Probing(seed=str(now))
            self._probing.start(now)
        waited = {key: slot for key, slot in self._slots.items() if slot.at > now}
        self._slots.clear()
        self._slow = min(2 * self._gap, self._pause) if waited else timedelta(0)
        for key, slot in waited.items():
            self._hold(key, slot.not_after, now + self._pause, FAILING)

    def _works(self, key: K, now: datetime, *, is_taken: bool) -> list[Released[K]]:
        """An answer came, to a new request or (`is_taken`) to one that had been taken."""
        self._end(key)
        self._in_a_row = 0
        self.last_success = now
        if is_taken:
            self._failing.clear()
        else:
            self._failing = {other: one for other, one in self._failing.items() if one.is_taken}
        if self.is_open:
            return [] if self._failing else self._close(now)
        self._tries.take_back(key)
        if not self._failing:
            self._tries.clear()
            self._not_before = None
        self._is_doubted = bool(self._failing)
        return self._let_on(now)

    def _close(self, now: datetime) -> list[Released[K]]:
        self._opened_at = self._reserved = self._not_before = None
        self._probing.stop()
        self._failing.clear()
        self._taken.clear()
        self._called.clear()
        self._tries.clear()
        self._in_a_row = self._trials = 0
        self._is_doubted = False
        self.recovered_at = now
        return self._spread(now)

    def _spread(self, now: datetime) -> list[Released[K]]:
        """A moment for each certificate that waited: the first immediately, the last in an hour or, where the
        issuer could not stand that, in a day; but none later than after half of its remaining life. First go
        those that expire within the hour, then those that have expired."""
        line = self._waiting.clear()
        each = 1 / max(len(line), 1)
        self._gap = max(min(_GAP, _SPREAD * each), min(self._slow, _LONGEST_SPREAD * each))
        line.sort(key=lambda one: (_urgency(one[0].not_after, now), one[0].number))
        for number, (place, key) in enumerate(line):
            at = now + number * self._gap
            if place.not_after > now:
                at = min(at, now + (place.not_after - now) / 2)
            self._slots[key] = _Slot(_whole(at), place.not_after)
        return [Released(key, slot.at) for key, slot in self._slots.items()]

    def _let_on(self, now: datetime) -> list[Released[K]]:
        room = self._in_flight.room(len(self._failing), now)
        first = [key for _, (_, key) in zip(range(room), self._waiting, strict=False)]
        for key in first:
            self._waiting.remove(key)
        return [Released(key, now) for key in first]

    def _end(self, key: K) -> None:
        """The attempt is over, however it went."""
        self._in_flight.end(key)
        self._taken.discard(key)
        if self._reserved is not None and self._reserved[0] == key:
            self._reserved = None


def _urgency(not_after: datetime, now: datetime) -> datetime:
    """What has expired is less urgent than what can still be replaced in time within the hour."""
    return not_after if not_after > now else now + _HOUR


def _whole(moment: datetime) -> datetime:
    """In whole seconds, not earlier: as it is written into conditions."""
    return moment if not moment.microsecond else moment.replace(microsecond=0) + _SECOND
