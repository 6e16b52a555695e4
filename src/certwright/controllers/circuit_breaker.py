"""The circuit breaker of one issuer: a state machine without clock and I/O.

    closed      attempts go through
    open        the issuer fails: attempts wait, and a probe is sent at growing intervals
    half-open   a probe was answered: one trial attempt at a time goes through

An *attempt* is a request that an issuer counts, e.g. a newOrder of ACME (RFC 8555 §7.4). A *probe* costs the
issuer nothing: a GET of the ACME directory. docs/backoff.md explains the breaker for users;
`issuer_gate.py` connects it with the controllers.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from certwright.controllers.backoff import is_possible
from certwright.kube.api.meta import ObjectKey
from certwright.pki.renewal import share
from certwright.resources.causes import Cause
from certwright.resources.retry import BreakerRecord

ATTEMPTS_PER_HOUR: Final = 12
TRIAL_LASTS: Final = timedelta(minutes=1)
"""How long a trial keeps the other applicants waiting if nothing comes of it."""
HOUR: Final = timedelta(hours=1)
_SECOND: Final = timedelta(seconds=1)

# This number of applicants fail together only if their issuer fails, and one fails so often in a row.
_ENOUGH: Final = 3
_IN_A_ROW: Final = 4
_ISSUERS_FAULT: Final = frozenset({Cause.UNAVAILABLE, Cause.RATE_LIMITED, Cause.UNKNOWN})

# A recovery is seen after about half of the length of the outage, and after two minutes at most.
_FIRST_PROBE: Final = timedelta(seconds=1)
_PROBE_FACTOR: Final = 1.5
_LONGEST_PROBE: Final = timedelta(minutes=2)
# Probes at shorter intervals are not recorded one by one.
_WORTH_RECORDING: Final = timedelta(seconds=15)

# Pauses before the first trials; later ones are at least an hour's part and at most 20 minutes apart.
_QUICK_TRIALS: Final = tuple(timedelta(seconds=seconds) for seconds in (4, 16, 64))
_LONGEST_TRIAL: Final = timedelta(minutes=20)
# So many attempts of an hour are not spent by those that were in flight when the issuer began to fail.
_TRIALS_KEPT: Final = 3

# A Retry-After beyond this is cut, because all applicants of the issuer depend on it.
_LONGEST_OBEYED: Final = timedelta(hours=32)
# A success within this time shows that the issuer works.
_FRESH: Final = timedelta(minutes=10)
_NO_APPLICANT: Final = ObjectKey("", "")
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
# Waiting applicants ask again after this time although a notification was missed.
_ASK_AGAIN: Final = timedelta(hours=6)


class State(StrEnum):
    """States of a breaker; the values are shown to users."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class Hold(NamedTuple):
    """Why an attempt must wait because of its issuer, and until when.

    `until` is when the applicant asks again. `is_exact`: the attempt is made at that time, unless the issuer
    recovers earlier; otherwise the time depends on the issuer, and none is announced. `is_brief`: the wait
    ends before it would be read.
    """

    until: datetime
    sentence: str
    is_exact: bool = False
    is_brief: bool = False


class Failure(NamedTuple):
    """The failure of an applicant's last attempt. `is_taken`: the issuer had accepted the request before.
    `has_left`: the applicant has gone to another issuer."""

    cause: Cause
    at: datetime
    is_taken: bool
    has_left: bool = False


class CircuitBreaker:
    """The circuit breaker of one issuer. An applicant is identified by its key.

    A question (`may_…`) changes nothing. The caller acts on the answer in the same step of the event loop:
    `start_attempt`, `continue_request` or `begin_trial` if the answer is None, else `wait`. Each attempt ends
    with `withdraw` or a `record_…`, which return the applicants to notify. At most `limit` attempts reach a
    failing issuer in any hour; attempts in flight when it began to fail, and attempts before a restart, are
    included. Raises `ValueError` if `limit` is not positive.
    """

    def __init__(self, limit: int = ATTEMPTS_PER_HOUR) -> None:
        if limit < 1:
            raise ValueError("the number of attempts per issuer and hour must be positive")
        self._limit = limit
        self._pause = HOUR / limit
        # In a first rush not all of an hour's attempts are spent: some are left to find out when it is back.
        self._at_once = max(limit // 2, 1)
        # How many may be in flight: two more for each success, because a new issuer may fail for all of them.
        self._allowed = self._at_once
        self._attempts: deque[tuple[datetime, ObjectKey | None]] = deque(maxlen=limit)
        self._in_flight: dict[ObjectKey, datetime] = {}
        self._failing: dict[ObjectKey, Failure] = {}
        self._failures_in_a_row = 0
        self._issued_at: datetime | None = None
        self._waiting: dict[ObjectKey, None] = {}

        self._probes_failed = 0
        self._trials = 0
        # The applicant that makes the trial attempt, and since when it may.
        self._trial: tuple[ObjectKey, datetime] | None = None
        # Whether a trial of this replica has failed, and no probe was answered since.
        self._has_failed_trial = False
        # Applicants whose requests the issuer accepts while it fails for earlier accepted requests.
        self._taken: set[ObjectKey] = set()

        self.is_doubted = False
        """Whether an attempt has failed, also before a restart, and none succeeded since: the next attempt
        MUST be recorded before it is made."""
        self.last_success: datetime | None = None
        """When the issuer last issued, or answered a request."""
        self.message = ""
        """What the last failure was, in a sentence."""
        self.opened_at: datetime | None = None
        """Since when it is open; None: it is closed."""
        self.probe_at: datetime | None = None
        """When the next probe is due; None: none is needed."""
        self.not_before: datetime | None = None
        """The time that the issuer named (`Retry-After`)."""
        self.recovered_at: datetime | None = None
        """When the breaker last closed."""

    @property
    def state(self) -> State:
        """The state, for people."""
        if self.opened_at is None:
            return State.CLOSED
        return State.OPEN if self.probe_at is not None else State.HALF_OPEN

    @property
    def is_open(self) -> bool:
        """Whether the issuer fails, so that at most one applicant at a time tries it."""
        return self.opened_at is not None

    @property
    def _free_at(self) -> datetime:
        """When the hour's attempts allow the next one."""
        return self._attempts[0][0] + HOUR if len(self._attempts) == self._limit else _LONG_AGO

    @property
    def waiting(self) -> int:
        """How many applicants wait because of the issuer."""
        return len(self._waiting)

    def failed_at(self, key: ObjectKey) -> datetime | None:
        """When the applicant's last attempt failed, if the issuer has not worked since."""
        failure = self._failing.get(key)
        return failure.at if failure is not None else None

    # --- questions ------------------------------------------------------------------------------------------

    def may_begin(self, key: ObjectKey, now: datetime) -> Hold | None:
        """Whether an issuance may begin, or a request that could go to another issuer may be sent here: the
        issuer works, or the applicant makes the next trial."""
        match self.state:
            case State.CLOSED:
                return None
            case State.OPEN:
                why = "is failing; it is probed at growing intervals, and issuance continues when it works"
                return Hold(_rounded_up(now + _ASK_AGAIN), why)
        if self._trial is not None and self._trial[0] == key:
            return None
        at, is_tried = self._next_trial(now), self._trial_ends(now) is not None
        if not is_tried and at <= now:
            return None
        why = "is failing; one certificate at a time tries it"
        if not is_tried and next(iter(self._waiting), key) == key:
            return Hold(_rounded_up(at), why, is_exact=True)
        return Hold(_rounded_up(now + _ASK_AGAIN), why)

    def may_attempt(self, key: ObjectKey, now: datetime) -> Hold | None:
        """Whether an attempt may be made.

        Until an issuer has answered, only half of an hour's attempts may be in flight together; each success
        allows more.
        """
        if self._is_in_flight(key, now):
            return None
        if self.is_open:
            return self.may_begin(key, now)
        has_issued = self._issued_at is not None and now - self._issued_at <= _FRESH
        if self.is_doubted and not has_issued and self._free_at > now:
            why = "has been tried as often as allowed in an hour and has not issued anything"
            return Hold(_rounded_up(self._free_at), why, is_exact=True)
        if self._room(now) > 0:
            return None
        return Hold(
            _rounded_up(now + self._pause), "has not answered the attempts in flight yet", is_brief=True
        )

    def may_continue(self, key: ObjectKey, now: datetime) -> Hold | None:
        """Whether the issuer may be asked about a request that it has accepted. A failing issuer is asked by
        the applicant whose trial it is, which counts as an attempt."""
        if not self.is_open or key in self._taken or self._is_in_flight(key, now):
            return None
        return self.may_begin(key, now)

    def trial_at(self, now: datetime) -> datetime | None:
        """When the next trial may be made; None: closed, or a probe has to be answered first."""
        if self.state is not State.HALF_OPEN:
            return None
        return self._trial_ends(now) or self._next_trial(now)

    # --- what follows from an answer ------------------------------------------------------------------------

    def wait(self, key: ObjectKey) -> None:
        """Add the applicant to those that are notified when they may ask again. Idempotent."""
        self._waiting.setdefault(key)

    def begin_trial(self, key: ObjectKey, now: datetime) -> None:
        """Give the applicant the trial, if the issuer fails."""
        if self.is_open:
            self._trial = (key, now)
        self._waiting.pop(key, None)

    def start_attempt(self, key: ObjectKey, now: datetime, *, out_of_turn: bool = False) -> None:
        """Record the start of an attempt; `out_of_turn`: regardless of the breaker. Idempotent while in
        flight."""
        if self._is_in_flight(key, now):
            return
        if self.is_open and not out_of_turn:
            self._trial = (key, now)
        self._waiting.pop(key, None)
        self._in_flight.pop(key, None)
        self._in_flight[key] = now
        self._attempts.append((now, key))

    def continue_request(self, key: ObjectKey, now: datetime) -> None:
        """Record a question about an accepted request; at a failing issuer the question is an attempt."""
        if self.is_open and key not in self._taken:
            self.start_attempt(key, now)

    # --- how an attempt ends --------------------------------------------------------------------------------

    def record_failure(
        self,
        key: ObjectKey,
        cause: Cause,
        now: datetime,
        until: datetime | None = None,
        *,
        is_taken: bool = False,
        message: str = "",
    ) -> list[ObjectKey]:
        """Record that an attempt failed because of the issuer. `until`: the issuer's Retry-After. `is_taken`:
        the issuer had accepted the request."""
        if cause not in _ISSUERS_FAULT:
            return self.record_answer(key, now)
        begun_at = self._in_flight.get(key)
        self._end(key)
        self._failing[key] = Failure(cause, now, is_taken)
        self._failures_in_a_row += 1
        self.is_doubted = True
        self.message = message or self.message
        if until is not None and cause is Cause.UNAVAILABLE:
            self.not_before = min(until, now + _LONGEST_OBEYED)
        if self.opened_at is None:
            if self._failures_in_a_row >= _IN_A_ROW or len(self._failing) >= min(_ENOUGH, self._at_once):
                self._open(now)
                while len(self._attempts) > max(self._limit - _TRIALS_KEPT, self._at_once):
                    self._attempts.popleft()
                # Their requests wait for the issuer like the others.
                self._waiting |= {other: None for other, f in self._failing.items() if not f.has_left}
            return []
        self.wait(key)
        if begun_at is not None and begun_at > self.opened_at:
            # A trial, not an attempt that was in flight when the issuer began to fail.
            self._trials += 1
            self._has_failed_trial = True
            self._schedule_probe(now)
        return []

    def record_answer(self, key: ObjectKey, now: datetime, *, is_taken: bool = True) -> list[ObjectKey]:
        """Record that the issuer works: it has refused a request for good. `is_taken`: one it had
        accepted."""
        self._end(key)
        self._failures_in_a_row = 0
        self.last_success = now
        # An answer to a new request says nothing of those that the issuer has taken.
        self._failing = {} if is_taken else {k: f for k, f in self._failing.items() if f.is_taken}
        if self.is_open:
            return [] if self._failing else self.close(now)
        self._remove_attempt(key)
        if not self._failing:
            self._attempts.clear()
            self.not_before = None
        self.is_doubted = bool(self._failing)
        return self._release(now)

    def record_acceptance(self, key: ObjectKey, now: datetime) -> list[ObjectKey]:
        """Record that the issuer has accepted the request: it works for new requests. The result depends on
        the names; the applicant may ask for it even while the breaker is open for others."""
        released = self.record_answer(key, now, is_taken=False)
        if self.is_open:
            self._taken.add(key)
        return released

    def record_success(self, key: ObjectKey, now: datetime) -> list[ObjectKey]:
        """Record that the issuer has issued."""
        is_fresh = self._issued_at is not None and now - self._issued_at <= _FRESH
        self._allowed = (self._allowed if is_fresh else self._at_once) + 2
        self._issued_at = now
        self._waiting.pop(key, None)
        return self.record_answer(key, now)

    def withdraw(self, key: ObjectKey, now: datetime) -> list[ObjectKey]:
        """Record that the attempt did not reach the issuer."""
        self._end(key)
        self._remove_attempt(key)
        return self._release(now)

    def leave(self, key: ObjectKey) -> None:
        """Remove an applicant that goes to another issuer. Its failure still counts."""
        self._end(key)
        self._waiting.pop(key, None)
        if (failure := self._failing.get(key)) is not None:
            self._failing[key] = failure._replace(has_left=True)

    def forget(self, key: ObjectKey) -> None:
        """The applicant does not exist any more."""
        self.leave(key)
        self._failing.pop(key, None)

    # --- probes and trials ----------------------------------------------------------------------------------

    def probed(self, now: datetime, *, is_answered: bool, message: str = "") -> list[ObjectKey]:
        """A probe was sent."""
        if self.probe_at is None:
            return []
        self.message = message or self.message
        if is_answered:
            self.probe_at, self._has_failed_trial = None, False
            return self.call_trial(now)
        self._schedule_probe(now, failed=self._probes_failed + 1)
        return []

    def call_trial(self, now: datetime) -> list[ObjectKey]:
        """The applicants that may make the trial, if it is due: the first of them to ask does. They go to the
        end of the line, because some may not ask: what they wait for may not be the issuer any more."""
        if self.state is not State.HALF_OPEN or self.may_begin(_NO_APPLICANT, now) is not None:
            return []
        first = list(islice(self._waiting, _ENOUGH))
        for key in first:
            self._waiting[key] = self._waiting.pop(key)
        return first

    def close(self, now: datetime) -> list[ObjectKey]:
        """The issuer works, as an answer here or another replica has shown. All that wait may ask again."""
        self.opened_at = self.probe_at = self._trial = self.not_before = None
        self._failing.clear()
        self._taken.clear()
        self._attempts.clear()
        self._failures_in_a_row = self._trials = 0
        self.is_doubted = self._has_failed_trial = False
        self.recovered_at = now
        released = list(self._waiting)
        self._waiting.clear()
        return released

    # --- the record at the issuer ---------------------------------------------------------------------------

    def record(self, now: datetime) -> BreakerRecord | None:
        """What a restart and other replicas must know; None: the issuer works."""
        if not (self.is_open or self.is_doubted):
            return None
        probe_at, trial_at = self.probe_at, self.trial_at(now)
        causes = [failure.cause for failure in self._failing.values()]
        return BreakerRecord(
            state=self.state.value,
            reason=max(causes, key=causes.count, default=Cause.UNAVAILABLE),
            message=self.message,
            since=self.opened_at,
            next_probe=_seconds(probe_at) if probe_at and probe_at - now >= _WORTH_RECORDING else None,
            # A trial that is due waits for an applicant: there is no time to record.
            next_attempt=_seconds(trial_at) if trial_at is not None and trial_at > now else None,
            not_before=_seconds(self.not_before),
            attempts=tuple(at for at, _ in self._attempts if now - at < HOUR),
        )

    def restore(self, record: BreakerRecord, now: datetime) -> None:
        """Continue from the record after a start."""
        self.is_doubted = True
        self.message = record.message
        self._add_attempts(record, now)
        self._reopen(record, now)

    def follow(
        self, before: BreakerRecord | None, after: BreakerRecord | None, now: datetime
    ) -> list[ObjectKey]:
        """The record has changed: by another replica, or by this one, which changes nothing here."""
        if after is not None and after.is_open:
            recovered_at = self.recovered_at if not self.is_open else None
            if recovered_at is not None and after.since is not None and after.since <= recovered_at:
                return []
            self._reopen(after, now)
            has_all_attempts = self._has_all_attempts(after, now)
            self._add_attempts(after, now)
            was_half_open = before is not None and before.state == State.HALF_OPEN.value
            if after.state == State.HALF_OPEN.value:
                # Until another probe is answered, such an event is of the time before the failed trial: only
                # the step from Open, with all attempts of this replica, shows an answer to a later probe.
                is_late = self._has_failed_trial and (was_half_open or not has_all_attempts)
                return [] if is_late else self.probed(now, is_answered=True)
            if was_half_open and self.state is State.HALF_OPEN and self._trial_ends(now) is None:
                self._schedule_probe(now)
            return []
        if after is not None or before is None:
            return []
        is_outdated = (
            self.opened_at is not None and before.since is not None and self.opened_at > before.since
        )
        # This replica knows of failures or attempts that the removed record did not have.
        if is_outdated or not self._has_all_attempts(before, now):
            return []
        return self.close(now) if self.is_open or self.is_doubted else []

    def add_unrecorded(self, count: int, now: datetime) -> None:
        """So many attempts may have been in flight at a crash, unrecorded: at most as many as may be in
        flight together, and none while the issuer was known to fail."""
        for _ in range(min(count, self._at_once) if not self.is_doubted else 0):
            self._attempts.append((now, None))
        self.is_doubted |= count > 0

    def _has_all_attempts(self, record: BreakerRecord, now: datetime) -> bool:
        """Whether all attempts of the last hour that this replica knows are in the record."""
        own = Counter(at for at, _ in self._attempts if now - at < HOUR)
        return own <= Counter(record.attempts)

    def _reopen(self, record: BreakerRecord, now: datetime) -> None:
        if not record.is_open:
            return
        since = record.since if record.since is not None and is_possible(record.since, now) else now
        if self.opened_at is None:
            self.is_doubted = True
            self._open(now)
            if record.not_before is not None:
                self.not_before = min(record.not_before, now + _LONGEST_OBEYED)
            if now - since > sum(_QUICK_TRIALS, timedelta(0)):
                self._trials = len(_QUICK_TRIALS) + 1
        self.opened_at = since

    def _add_attempts(self, record: BreakerRecord, now: datetime) -> None:
        # Several may be of the same moment.
        known = Counter(at for at, _ in self._attempts)
        times = Counter(min(at, now) for at in record.attempts if is_possible(at, now)) - known
        if times:
            both = [*self._attempts, *((at, None) for at in times.elements())]
            self._attempts = deque(sorted(both, key=lambda attempt: attempt[0]), maxlen=self._limit)

    # --- parts ----------------------------------------------------------------------------------------------

    def _open(self, now: datetime) -> None:
        self.opened_at = now
        self._trials = 0
        self._allowed, self._issued_at = self._at_once, None
        self._schedule_probe(now)

    def _schedule_probe(self, now: datetime, *, failed: int = 0) -> None:
        """Set the time of the next probe, after so many that have failed in a row."""
        self._probes_failed = failed
        interval = min(_FIRST_PROBE * _PROBE_FACTOR ** min(failed, 64), _LONGEST_PROBE)
        # Different by a tenth, so that the probes of issuers of one CA do not coincide.
        self.probe_at = now + interval * (0.9 + 0.2 * share(f"{self.opened_at}/{failed}"))

    def _end(self, key: ObjectKey) -> None:
        """The attempt is over, however it went."""
        self._in_flight.pop(key, None)
        self._taken.discard(key)
        if self._trial is not None and self._trial[0] == key:
            self._trial = None

    def _remove_attempt(self, key: ObjectKey) -> None:
        """The last attempt of `key` succeeded, or did not reach the issuer."""
        for index in range(len(self._attempts) - 1, -1, -1):
            if self._attempts[index][1] == key:
                del self._attempts[index]
                return

    def _release(self, now: datetime) -> list[ObjectKey]:
        """Those that may start now, while the breaker is closed."""
        released = list(islice(self._waiting, max(self._room(now), 0))) if not self.is_open else []
        for key in released:
            del self._waiting[key]
        return released

    def _room(self, now: datetime) -> int:
        """How many more attempts may start; at least one if none is in flight."""
        for key, since in list(islice(self._in_flight.items(), 2)):
            # One that takes longer does not show whether the issuer works.
            if now - since >= HOUR:
                del self._in_flight[key]
        is_fresh = self._issued_at is not None and now - self._issued_at <= _FRESH
        allowed = self._allowed if is_fresh else self._at_once
        return max(allowed - len(self._in_flight) - len(self._failing), 0 if self._in_flight else 1)

    def _is_in_flight(self, key: ObjectKey, now: datetime) -> bool:
        since = self._in_flight.get(key)
        return since is not None and now - since < HOUR

    def _trial_ends(self, now: datetime) -> datetime | None:
        """When the present trial loses its turn if nothing comes of it; None: none has it."""
        ends = self._trial[1] + TRIAL_LASTS if self._trial is not None else None
        return ends if ends is not None and now < ends else None

    def _next_trial(self, now: datetime) -> datetime:
        """The first moment of the next trial.

        A few trials follow in quick succession. Then the pauses grow with the time for which the issuer has
        been failing, so that a restart need not know how many there were.
        """
        if not self._attempts or self.opened_at is None:
            return self.not_before or now
        last = self._attempts[-1][0]
        pause = max(self._pause, min(last - self.opened_at, _LONGEST_TRIAL))
        if self._trials <= len(_QUICK_TRIALS):
            pause = _QUICK_TRIALS[self._trials - 1] if self._trials else timedelta(0)
        return max(last + pause, self._free_at, self.not_before or last)


def _rounded_up(moment: datetime) -> datetime:
    """In whole seconds, not earlier: as it is written into conditions."""
    return moment if not moment.microsecond else moment.replace(microsecond=0) + _SECOND


def _seconds(moment: datetime | None) -> datetime | None:
    return moment.replace(microsecond=0) if moment is not None else None
