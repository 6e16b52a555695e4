"""The circuit breaker of one issuer. No clock, no I/O.

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

A question (`breaker_decisions.py`) changes nothing. The caller acts on its answer in the same step of the
event loop: `begin` or `start_attempt` if the answer is yes, else `wait`. Each attempt ends with one of
`succeeded`, `taken`, `answered`, `failed` and `withdrawn`.

Used by `gate.py`. docs/backoff.md explains it for users.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

from certwright.controllers.retry import breaker_decisions as decisions
from certwright.controllers.retry.backoff import Hold
from certwright.controllers.retry.breaker_decisions import QUICK, TRIAL_LASTS, rounded_up
from certwright.controllers.retry.breaker_state import ENOUGH, BreakerState, Failure, Slot, Turn
from certwright.controllers.retry.probing import Probing
from certwright.resources.causes import Cause

K = TypeVar("K", bound=Hashable)

_HOUR: Final = timedelta(hours=1)
# One certificate fails so often in a row only if its issuer fails.
_IN_A_ROW: Final = 4
_ISSUERS_FAULT: Final = frozenset({Cause.UNAVAILABLE, Cause.RATE_LIMITED, Cause.UNKNOWN})
# A Retry-After beyond this is cut: others depend on the issuer.
_LONGEST_OBEYED: Final = timedelta(hours=32)
# Pauses between two of the certificates that continue after the issuer is back, and the longest spread.
_GAP: Final = timedelta(seconds=0.5)
_SPREAD: Final = _HOUR
_LONGEST_SPREAD: Final = timedelta(days=1)
# So many attempts of an hour are not spent by what was in flight when the issuer began to fail.
_TRIALS_KEPT: Final = 3


class Released(NamedTuple, Generic[K]):
    """A certificate that may ask again at `at`."""

    key: K
    at: datetime


class Circuit(BreakerState[K]):
    """The breaker of one issuer: its questions, and what happens."""

    # --- questions ------------------------------------------------------------------------------------------

    def may_begin(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """See `breaker_decisions.may_begin`. If it may, the caller MUST call `begin`."""
        return decisions.may_begin(self, key, not_after, now)

    def may_attempt(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """See `breaker_decisions.may_attempt`. If it may, the caller MUST call `start_attempt`."""
        return decisions.may_attempt(self, key, not_after, now)

    def may_continue(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """See `breaker_decisions.may_continue`. If it may, the caller MUST call `continue_request`."""
        return decisions.may_continue(self, key, not_after, now)

    def may_join(self, key: K, not_after: datetime | None, now: datetime) -> bool:
        """See `breaker_decisions.may_join`. One that may and does MUST call `begin`."""
        return decisions.may_join(self, key, not_after, now)

    def trial_at(self, now: datetime) -> datetime | None:
        """See `breaker_decisions.trial_at`."""
        return decisions.trial_at(self, now)

    # --- what follows from an answer ------------------------------------------------------------------------

    def wait(self, key: K, not_after: datetime | None, until: datetime, now: datetime) -> None:
        """The certificate waits in its place, and asks again at `until`. One that continues after the issuer
        is back has its place already."""
        if (called_at := self.called.get(key)) is not None and called_at <= now:
            del self.called[key]
        if key not in self.slots:
            self._enqueue(key, not_after, until, now)

    def begin(self, key: K, now: datetime) -> None:
        """An issuance begins. While the issuer fails, it takes the turn of the trial. Idempotent."""
        if not self.limit:
            return
        self.slots.pop(key, None)
        self.queue.remove(key)
        if self.is_open and not self.has_turn(key):
            for place, other in list(self.queue):
                # One that has failed does not ask again by itself: it waits to be released.
                if not place.has_failed and decisions.is_absent(self, other, now):
                    self.queue.remove(other)
            self.turn = Turn(key, now)

    def start_attempt(self, key: K, now: datetime, *, out_of_turn: bool = False) -> None:
        """An attempt is made; `out_of_turn`: whatever the breaker says. Idempotent while it is in flight."""
        if not self.limit or self.in_flight.is_fresh(key, now):
            return
        if not out_of_turn:
            self.begin(key, now)
        if not self.is_open:
            self.in_flight.forget_old(now)
        self.in_flight.add(key, now)
        self.tries.add(key, now)
        self.queue.remove(key)
        self.called.pop(key, None)
        if self.has_turn(key):
            self.turn = Turn(key, now)

    def continue_request(self, key: K, now: datetime) -> None:
        """The issuer is asked about a request that it has taken; while it fails, that is an attempt."""
        if self.is_open and key not in self.taken_keys:
            self.start_attempt(key, now)
        elif (slot := self.slots.get(key)) is not None and slot.at <= now:
            del self.slots[key]

    # --- what happens ---------------------------------------------------------------------------------------

    def recall(self, key: K | None, at: datetime) -> None:
        """An attempt was made before a restart. MUST be called in order, before anything else."""
        if self.limit:
            self.is_doubted = True
            self.tries.add(key, at)

    def recall_unrecorded(self, count: int, now: datetime) -> None:
        """So many attempts may have been in flight at a crash, unrecorded: at most as many as may be in
        flight together, and none while the issuer was known to fail."""
        if self.limit and not self.failing and not self.is_open:
            for _ in range(min(count, self.at_once)):
                self.is_doubted = True
                self.tries.add(None, now)

    def reopen(self, since: datetime, not_before: datetime | None, now: datetime) -> None:
        """It was open before a restart, or it is in another replica."""
        if self.limit and not self.is_open:
            self.is_doubted = True
            self.not_before = min(not_before, now + _LONGEST_OBEYED) if not_before is not None else None
            self._open(now)
            self.opened_at = since
            if now - since > sum(QUICK, timedelta(0)):
                # It had its quick trials.
                self.trials = len(QUICK) + 1

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
        if not self.limit:
            return []
        # Not one of those that were in flight when it began to fail.
        begun_at = self.in_flight.since(key)
        was_trial = self.opened_at is not None and begun_at is not None and begun_at > self.opened_at
        self._end(key)
        self.failing[key] = Failure(cause, is_taken, now)
        self.is_doubted = True
        self.message = message or self.message
        self.failures_in_a_row += 1
        if until is not None and cause is Cause.UNAVAILABLE:
            self.not_before = min(until, now + _LONGEST_OBEYED)
        is_enough = self.has_probe and self.failures_in_a_row >= _IN_A_ROW
        if not self.is_open and (is_enough or len(self.failing) >= self.enough):
            self._open(now)
            if self.has_probe:
                self.tries.keep(max(self.limit - _TRIALS_KEPT, self.limit // 2))
        elif was_trial:
            self.trials += 1
            if self.has_probe:
                self.probing.start(now)
        if self.is_open and self.has_probe:
            # Its order waits for the issuer like the others: it is notified with them.
            for each, failure in self.failing.items() if key not in self.queue else ():
                if not failure.has_left:
                    self._enqueue(each, None, now, now)
        return []

    def answered(self, key: K, now: datetime, *, is_taken: bool = True) -> list[Released[K]]:
        """The issuer has refused a request for good: it works. `is_taken`: one that it had taken before."""
        return self._works(key, now, is_taken=is_taken)

    def taken(self, key: K, now: datetime) -> list[Released[K]]:
        """The issuer has taken the request: it works as far as new requests go. What follows depends on the
        names, and may be asked about even while the breaker is open for others."""
        is_open_for_more = any(failure.is_taken for failure in self.failing.values())
        released = self._works(key, now, is_taken=False)
        if is_open_for_more and self.is_open:
            self.taken_keys.add(key)
        return released

    def withdrawn(self, key: K, now: datetime) -> list[Released[K]]:
        """The attempt did not reach the issuer."""
        self._end(key)
        self.tries.remove(key)
        return self._release_next(now) if not self.is_open else []

    def succeeded(self, key: K, now: datetime) -> list[Released[K]]:
        """The issuer has issued. Returns which certificates to notify, and when."""
        self.slots.pop(key, None)
        self.in_flight.succeeded(now)
        released = self._works(key, now, is_taken=True)
        self.queue.remove(key)
        return released

    def leave(self, key: K) -> None:
        """The certificate goes to another issuer: it neither waits here nor has the next trial."""
        self._end(key)
        self._dequeue(key)
        self.slots.pop(key, None)

    def forget(self, key: K) -> None:
        """The certificate does not exist any more."""
        self.leave(key)
        self.failing.pop(key, None)

    def resume(self, waited: Iterable[tuple[K, datetime | None]], now: datetime) -> list[Released[K]]:
        """After a restart: the certificates that were waiting, with their expiries, go on spread out if the
        issuer works by now."""
        if self.is_open:
            return []
        for key, not_after in waited:
            self.wait(key, not_after, now, now)
        return self._spread(now)

    def close(self, now: datetime) -> list[Released[K]]:
        """Another replica has seen the issuer work."""
        return self._close(now) if self.is_open else []

    # --- probes ---------------------------------------------------------------------------------------------

    def probed(self, now: datetime, *, is_answered: bool, message: str = "") -> list[Released[K]]:
        """A probe was sent. Returns which certificates may try the issuer, and when."""
        if not self.is_open or self.probing.at is None:
            return []
        self.message = message or self.message
        if is_answered:
            self.probing.stop()
            return self.call_trial(now)
        self.probing.failed(now)
        return []

    def trial_failed(self, now: datetime) -> None:
        """The trial of another replica has failed: the next one waits for a probe again."""
        if self.is_open and self.probing.at is None and self.has_probe:
            self.probing.start(now)

    def call_trial(self, now: datetime) -> list[Released[K]]:
        """The certificates that may make the next trial, when it is due: the first of them to ask does. Those
        that do not ask within a minute are not issued here any more, or wait for something else: others are
        called."""
        at = self.trial_at(now)
        if at is None or decisions.is_turn_taken(self, now):
            return []
        for key in [key for key, since in self.called.items() if now - since >= TRIAL_LASTS]:
            self._dequeue(key)
        at = max(at, now)
        first = [key for _, (_, key) in zip(range(ENOUGH), self.queue, strict=False)]
        self.called = {key: self.called.get(key, at) for key in first}
        return [Released(key, at) for key in first]

    # --- opening and closing --------------------------------------------------------------------------------

    def _open(self, now: datetime) -> None:
        """If those that have waited are still going on: they were too fast for the issuer."""
        self.opened_at = now
        self.in_flight.doubt()
        self.trials = 0
        if self.has_probe:
            self.probing = Probing(seed=str(now))
            self.probing.start(now)
        waited = {key: slot for key, slot in self.slots.items() if slot.at > now}
        self.slots.clear()
        self.slow_gap = min(2 * self.gap, self.pause) if waited else timedelta(0)
        for key, slot in waited.items():
            self.wait(key, slot.not_after, now + self.pause, now)

    def _works(self, key: K, now: datetime, *, is_taken: bool) -> list[Released[K]]:
        """An answer came, to a new request or (`is_taken`) to one that had been taken."""
        self._end(key)
        self.failures_in_a_row = 0
        self.last_success = now
        if is_taken:
            self.failing.clear()
        else:
            self.failing = {other: failure for other, failure in self.failing.items() if failure.is_taken}
        if self.is_open:
            return [] if self.failing else self._close(now)
        self.tries.remove(key)
        if not self.failing:
            self.tries.clear()
            self.not_before = None
        self.is_doubted = bool(self.failing)
        return self._release_next(now)

    def _close(self, now: datetime) -> list[Released[K]]:
        self.opened_at = self.turn = self.not_before = None
        self.probing.stop()
        self.failing.clear()
        self.taken_keys.clear()
        self.called.clear()
        self.tries.clear()
        self.failures_in_a_row = self.trials = 0
        self.is_doubted = False
        self.recovered_at = now
        return self._spread(now)

    def _spread(self, now: datetime) -> list[Released[K]]:
        """A moment for each certificate that waited: the first immediately, the last in an hour or, where the
        issuer could not stand that, in a day; but none later than after half of its remaining life. First go
        those that expire within the hour, then those that have expired."""
        line = self.queue.clear()
        each = 1 / max(len(line), 1)
        self.gap = max(min(_GAP, _SPREAD * each), min(self.slow_gap, _LONGEST_SPREAD * each))
        line.sort(key=lambda entry: (_urgency(entry[0].not_after, now), entry[0].number))
        for number, (place, key) in enumerate(line):
            at = now + number * self.gap
            if place.not_after > now:
                at = min(at, now + (place.not_after - now) / 2)
            self.slots[key] = Slot(rounded_up(at), place.not_after)
        return [Released(key, slot.at) for key, slot in self.slots.items()]

    def _release_next(self, now: datetime) -> list[Released[K]]:
        self.in_flight.forget_old(now)
        room = self.in_flight.room(len(self.failing), now)
        first = [key for _, (_, key) in zip(range(room), self.queue, strict=False)]
        for key in first:
            self.queue.remove(key)
        return [Released(key, now) for key in first]

    def _enqueue(self, key: K, not_after: datetime | None, until: datetime, now: datetime) -> None:
        self.queue.add(key, not_after, now, has_failed=key in self.failing)
        self.queue.set_check(key, rounded_up(until))

    def _dequeue(self, key: K) -> None:
        """It waits no longer, until it asks again. Its failure still counts."""
        self.queue.remove(key)
        self.called.pop(key, None)
        if (failure := self.failing.get(key)) is not None:
            self.failing[key] = failure._replace(has_left=True)

    def _end(self, key: K) -> None:
        """The attempt is over, however it went."""
        self.in_flight.end(key)
        self.taken_keys.discard(key)
        if self.has_turn(key):
            self.turn = None


def _urgency(not_after: datetime, now: datetime) -> datetime:
    """What has expired is less urgent than what can still be replaced in time within the hour."""
    return not_after if not_after > now else now + _HOUR
