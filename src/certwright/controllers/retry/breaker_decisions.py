"""Questions to the circuit breaker of one issuer. Pure: a question changes nothing, so that the same question
at the same time has the same answer.

None is "yes". Otherwise the answer is a `Hold`: until when the certificate waits, and why. What follows from
an answer (`begin`, `start_attempt`, `wait`) are calls of `breaker.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from certwright.controllers.retry.backoff import Hold
from certwright.controllers.retry.breaker_state import BreakerState
from certwright.resources.causes import Cause

K = TypeVar("K", bound=Hashable)

FAILING: Final = "is failing; one certificate at a time tries it, those that expire first before others"
AWAY: Final = "is failing; it is probed at growing intervals, and issuance continues when it works again"
BACK: Final = "works again; the certificates waiting for it continue one after the other"
UNPROVEN: Final = "has not answered the attempts in flight yet"
SPENT: Final = "has been tried as often as allowed in an hour and has not issued anything"
"""Why a certificate waits, as said of an issuer."""

QUICK: Final = tuple(timedelta(seconds=seconds) for seconds in (4, 16, 64))
"""Pauses before the first trials of an issuer whose probes are answered; then those of the hour's budget."""

TRIAL_LASTS: Final = timedelta(minutes=1)
"""How long a trial of an issuer that can be probed keeps the others waiting if nothing comes of it."""

_HOUR: Final = timedelta(hours=1)
_SECOND: Final = timedelta(seconds=1)
# A certificate that was let through and never asked: it was deleted, or waits for an approval.
_RESERVED: Final = timedelta(minutes=5)
# Waiting certificates check again after this time although a notification was missed.
_CHECK_AGAIN: Final = timedelta(hours=6)
# Trials are at most this part of the remaining life of the certificate that expires next apart.
_PARTS: Final = 8
_LONGEST_PAUSE: Final = timedelta(minutes=20)


def may_begin(state: BreakerState[K], key: K, not_after: datetime | None, now: datetime) -> Hold | None:
    """Whether an issuance may begin. `not_after` is the expiry of its present certificate."""
    if not state.limit:
        return None
    if state.is_open:
        return _may_try(state, key, not_after, now)
    slot = state.slots.get(key)
    return Hold(slot.at, BACK) if slot is not None and now < slot.at else None


def may_attempt(state: BreakerState[K], key: K, not_after: datetime | None, now: datetime) -> Hold | None:
    """Whether an attempt may be made.

    As `may_begin`; and while an issuer has not answered, only half of an hour's attempts may be in flight
    together. The more it issues, the more.
    """
    if not state.limit or state.in_flight.is_fresh(key, now):
        return None
    if (hold := may_begin(state, key, not_after, now)) is not None or state.is_open:
        return hold
    free_at = state.tries.free_at(now)
    if state.is_doubted and not state.in_flight.has_succeeded(now) and free_at > now:
        before = _position(state, key, not_after, now)
        return Hold(rounded_up(free_at + before * state.pause), SPENT, is_exact=before == 0)
    if state.in_flight.room(len(state.failing), now) > 0:
        return None
    return Hold(rounded_up(now + state.pause), UNPROVEN, is_exact=False, is_brief=True)


def may_continue(state: BreakerState[K], key: K, not_after: datetime | None, now: datetime) -> Hold | None:
    """Whether the issuer may be asked about a request that it has taken: always while it works; else only by
    the certificate whose trial it is, and that is an attempt."""
    if not state.is_open or key in state.taken_keys or state.in_flight.is_fresh(key, now):
        return None
    return may_begin(state, key, not_after, now)


def may_join(state: BreakerState[K], key: K, not_after: datetime | None, now: datetime) -> bool:
    """Whether a certificate that has another issuer to go to may use this one: it works, or this is its
    next trial."""
    return not state.is_open or may_begin(state, key, not_after, now) is None


def trial_at(state: BreakerState[K], now: datetime) -> datetime | None:
    """When the next trial attempt may be made; None: closed, or a probe has to be answered first."""
    if not state.is_open or state.probing.at is not None:
        return None
    return turn_ends(state) if is_turn_taken(state, now) else _next_trial(state, None, now)


def is_turn_taken(state: BreakerState[K], now: datetime) -> bool:
    """Whether a certificate has the turn. A trial may take long; one that never asks loses its turn."""
    ends = turn_ends(state)
    return ends is not None and now < ends


def turn_ends(state: BreakerState[K]) -> datetime | None:
    """When the present turn ends if nothing comes of it; None: no certificate has it."""
    turn = state.turn
    if turn is None:
        return None
    if state.has_probe:
        return turn.since + TRIAL_LASTS
    return turn.since + (_HOUR if turn.key in state.in_flight else _RESERVED)


def is_absent(state: BreakerState[K], key: K, now: datetime) -> bool:
    """Whether a waiting certificate has missed its turn: it was deleted, or need not be issued any more."""
    check_at = state.queue.check_at(key)
    return check_at is not None and check_at + 2 * state.pause < now


def rounded_up(moment: datetime) -> datetime:
    """In whole seconds, not earlier: as it is written into conditions."""
    return moment if not moment.microsecond else moment.replace(microsecond=0) + _SECOND


def _may_try(state: BreakerState[K], key: K, not_after: datetime | None, now: datetime) -> Hold | None:
    if state.has_turn(key):
        return None
    if state.probing.at is not None:
        return Hold(rounded_up(now + _CHECK_AGAIN), AWAY, is_exact=False)
    at, is_taken = _next_trial(state, not_after, now), is_turn_taken(state, now)
    before = _position(state, key, not_after, now)
    is_first = before == 0 or key in state.called
    if now >= at and not is_taken and (is_first or _is_first_present(state, key, not_after, now)):
        return None
    until = (at if now < at else now + state.pause) + before * state.pause
    return Hold(rounded_up(until), FAILING, is_exact=now < at and before == 0 and not is_taken)


def _position(state: BreakerState[K], key: K, not_after: datetime | None, now: datetime) -> int:
    """How many certificates are before it in the queue, whether it is in there yet or not."""
    return state.queue.position(key, not_after, now, has_failed=key in state.failing)


def _is_first_present(state: BreakerState[K], key: K, not_after: datetime | None, now: datetime) -> bool:
    """Whether those before it in the queue have missed their turn, or check again only later."""
    own = state.queue.place_of(key, not_after, now, has_failed=key in state.failing)
    for place, other in state.queue:
        if place >= own:
            break
        check_at = state.queue.check_at(other)
        if check_at is not None and check_at <= now and not is_absent(state, other, now):
            return False
    return True


def _next_trial(state: BreakerState[K], not_after: datetime | None, now: datetime) -> datetime:
    """The first moment of the next trial, if its certificate expires at `not_after`.

    An issuer that can be probed gets a few trials in quick succession. Then the pauses double, from the
    shortest that keeps to the budget up to 20 minutes (without probes: an hour), by growing with the time for
    which the issuer has been failing: so a restart need not know how many there were.
    """
    last = state.tries.last
    if last is None or state.opened_at is None:
        return now
    longest = _LONGEST_PAUSE if state.has_probe else _HOUR
    pause = max(state.pause, min(last - state.opened_at, longest))
    if not state.has_probe and all(failure.cause is Cause.UNKNOWN for failure in state.failing.values()):
        # Perhaps it is about their names.
        pause = state.pause
    if (soonest := _soonest(state, not_after, now)) is not None and soonest > last:
        pause = max(state.pause, min(pause, (soonest - last) / _PARTS))
    if state.has_probe and state.trials <= len(QUICK):
        pause = QUICK[state.trials - 1] if state.trials else timedelta(0)
    moments = [now, last + pause, state.tries.free_at(now)]
    if state.not_before is not None:
        moments.append(state.not_before)
    return max(moments)


def _soonest(state: BreakerState[K], not_after: datetime | None, now: datetime) -> datetime | None:
    waiting = state.queue.first_end_after(now)
    ends = [end for end in (not_after, waiting) if end is not None and end > now]
    return min(ends, default=None)
