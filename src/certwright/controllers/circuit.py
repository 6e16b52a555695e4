"""Spare an issuer that fails as a whole: one certificate tries it, the others wait. Pure: no clock, no I/O.

A `Circuit` belongs to one issuer. It is *closed* while the issuer works, and *opens* when three different
certificates have failed, none has succeeded between, and what they failed for may be the issuer's fault.
While it is open, one certificate at a time probes: one that has not failed yet, and of these the one that
ends first. The first success closes it; those who have waited then go on spread out, the ones that end first
before the others.

Whatever the number of certificates, at most `attempts_per_hour` attempts reach a failing issuer in any hour,
those that were under way when it began to fail included, and those of before a restart that are recalled.

Used by `gate.py` and by the fleet simulator (`bench/fleet.py`). docs/backoff.md explains it for users.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

from certwright.controllers.certificates.backoff import Hold
from certwright.controllers.tries import Tries
from certwright.pki.renewal import share
from certwright.resources.causes import Cause

K = TypeVar("K", bound=Hashable)

ATTEMPTS_PER_HOUR: Final = 12
FAILING: Final = "fails for several certificates; one at a time tries it, those that end first go first"
BACK: Final = "works again; those that have waited for it go on one after the other"
UNPROVEN: Final = "has yet to answer those that have asked it before"
SPENT: Final = "has been asked as often as it may be in an hour, and has not issued anything"
"""Why somebody waits, to be said of an issuer."""

_HOUR: Final = timedelta(hours=1)
# So many certificates fail together only where it is not about their names.
_ENOUGH: Final = 3
_ISSUERS_FAULT: Final = frozenset({Cause.UNAVAILABLE, Cause.RATE_LIMITED, Cause.UNKNOWN})
# An issuer that wants to be left alone for longer is asked all the same, since others depend on it.
_LONGEST_OBEYED: Final = timedelta(hours=32)
# One that was let through and does not come: it has been deleted, or waits for an approval.
_RESERVED: Final = timedelta(minutes=5)
# Those far back in the line look again in this time; it only keeps what they say about it true.
_LOOK_AGAIN: Final = timedelta(hours=6)
# What an issuer has issued this long ago shows that it works; of more than so many no account is kept.
_FRESH: Final = timedelta(minutes=10)
_MANY: Final = 5000
# When the issuer is back.
_GAP: Final = timedelta(seconds=5)
_SPREAD: Final = _HOUR
_LONGEST_SPREAD: Final = timedelta(days=1)
# A probe this part of the rest of its certificate's life after the last one: it is worth being tried again.
_PARTS: Final = 8
# What has no certificate yet is as urgent as one that ends tomorrow.
_WITHOUT_END: Final = timedelta(days=1)


class Released(NamedTuple, Generic[K]):
    """Somebody who need not wait any longer than until `at`."""

    key: K
    at: datetime


class _Place(NamedTuple):
    """A place in the line of those who wait: smaller is earlier."""

    has_failed: bool
    not_after: datetime
    number: int


class _Slot(NamedTuple):
    """When somebody goes on after the issuer is back, and the end of its certificate."""

    at: datetime
    not_after: datetime


@dataclass(slots=True)
class _Waiter:
    place: _Place
    promised: datetime


class Circuit(Generic[K]):
    """The state of one issuer. `K` names a certificate.

    `attempts_per_hour` 0 switches all of it off. Raises `ValueError` where it is negative. Times are aware.
    """

    def __init__(self, attempts_per_hour: int = ATTEMPTS_PER_HOUR) -> None:
        if attempts_per_hour < 0:
            raise ValueError("the number of attempts per issuer and hour must not be negative")
        self._limit = attempts_per_hour
        self._pause = _HOUR / attempts_per_hour if attempts_per_hour else timedelta(0)
        self._failing: dict[K, Cause] = {}
        # In a first rush not all of an hour's attempts are spent: some are left to find out when it is back.
        self._at_once = max(attempts_per_hour // 2, min(attempts_per_hour, _ENOUGH))
        self._tries: Tries[K] = Tries(max(attempts_per_hour, 1))
        self._is_doubted = False
        self._opened_at: datetime | None = None
        self._not_before: datetime | None = None
        self._under_way: dict[K, datetime] = {}
        self._taken: set[K] = set()
        self._proofs: deque[datetime] = deque(maxlen=_MANY)
        self._reserved: tuple[K, datetime] | None = None
        self._line: list[tuple[_Place, K]] = []
        self._waiters: dict[K, _Waiter] = {}
        self._places = 0
        self._slots: dict[K, _Slot] = {}
        self._gap = self._slow = timedelta(0)

    @property
    def is_open(self) -> bool:
        """Whether the issuer is taken to be failing, so that all but one wait."""
        return self._opened_at is not None

    @property
    def is_doubted(self) -> bool:
        """Whether something has failed, now or before a restart, and nothing was issued since: an attempt
        must be written down before it is made."""
        return self._is_doubted

    @property
    def waiting(self) -> int:
        """How many wait because of the issuer."""
        return len(self._waiters) + len(self._slots)

    # --- questions ------------------------------------------------------------------------------------------

    def may_begin(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """Whether an issuance may begin (None), or until when it waits at least. Asking twice is harmless.

        `not_after` is the end of the certificate that it has now.
        """
        if not self._limit:
            return None
        if self.is_open:
            held = self._waiters.get(key)
            if held is not None and now < held.promised:
                return Hold(held.promised, FAILING)
            return self._may_probe(key, not_after, now)
        slot = self._slots.get(key)
        if slot is not None and now < slot.at:
            return Hold(slot.at, BACK)
        self._slots.pop(key, None)
        return None

    def may_ask(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """Whether the issuer may be asked (None). Whoever is let through MUST tell `asked`.

        As `may_begin`; and while an issuer has not answered, only half as many ask it at once as may fail in
        an hour: it is not known yet whether it works. The more it issues, the more may ask.
        """
        if not self._limit or self._is_under_way(key, now):
            return None
        if (hold := self.may_begin(key, not_after, now)) is not None or self.is_open:
            return hold
        room, free_at = self._room(now), self._tries.free_at(now)
        if self._is_doubted and not self._proofs and free_at > now:
            return self._hold(key, not_after, free_at, SPENT)
        if room > 0:
            self._leave(key)
            return None
        return self._hold(key, not_after, now + self._pause, UNPROVEN)

    def may_go_on(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        """Whether the issuer may be asked about what it has taken (None): always while it works, and else by
        the one that probes. Then it counts as asked."""
        if not self.is_open or key in self._taken or self._is_under_way(key, now):
            return None
        if (hold := self.may_begin(key, not_after, now)) is None:
            self.asked(key, now)
        return hold

    # --- news -----------------------------------------------------------------------------------------------

    def asked(self, key: K, now: datetime) -> None:
        """The issuer is being asked. May be told twice of the same attempt."""
        if not self._limit or self._is_under_way(key, now):
            return
        self._under_way.pop(key, None)
        self._under_way[key] = now
        self._tries.add(key, now)
        self._leave(key)
        if self._reserved is not None and self._reserved[0] == key:
            self._reserved = (key, now)

    def recall(self, key: K, at: datetime) -> None:
        """Before a restart the issuer was asked at that moment. MUST be told in order, and before anything
        else."""
        if self._limit:
            self._is_doubted = True
            self._tries.add(key, at)

    def recall_untold(self, count: int, now: datetime) -> None:
        """So many may have asked before a restart without its having been written down. More than ask at once
        cannot have, and none while something was known to fail."""
        if self._limit and not self._failing:
            for _ in range(min(count, self._at_once)):
                self._is_doubted = True
                self._tries.add(None, now)

    def failed(self, key: K, cause: Cause, now: datetime, until: datetime | None = None) -> list[Released[K]]:
        """The attempt has failed. `until`: when the issuer wants to be asked again. Whom to wake, when."""
        if cause not in _ISSUERS_FAULT:
            return self.answered(key, now)
        if not self._limit:
            return []
        self._end(key)
        self._failing[key] = cause
        self._is_doubted = True
        if until is not None and cause is Cause.UNAVAILABLE:
            self._not_before = min(until, now + _LONGEST_OBEYED)
        if not self.is_open and len(self._failing) >= _ENOUGH:
            self._open(now)
        return []

    def answered(self, key: K, now: datetime) -> list[Released[K]]:
        """The attempt has ended, by something that says nothing bad about the issuer. Whom to wake, when."""
        self._end(key)
        return self._not_in_vain(key, now)

    def taken(self, key: K, now: datetime) -> list[Released[K]]:
        """The issuer has taken the request: what comes now depends on its names, and may be asked about even
        while nobody else may ask. Whom to wake, and when."""
        self._end(key)
        if self.is_open:
            self._taken.add(key)
        return self._not_in_vain(key, now)

    def _not_in_vain(self, key: K, now: datetime) -> list[Released[K]]:
        if self.is_open:
            return []
        self._is_doubted = bool(self._failing)
        self._tries.take_back(key)
        return self._let_on(now)

    def succeeded(self, key: K, now: datetime) -> list[Released[K]]:
        """The issuer has issued. Whom to wake, and when."""
        self._end(key)
        self._leave(key)
        self._slots.pop(key, None)
        self._failing.clear()
        self._taken.clear()
        self._tries.clear()
        self._is_doubted = False
        self._proofs.append(now)
        self._not_before = None
        if self.is_open:
            self._opened_at = self._reserved = None
            return self._spread(now)
        return self._let_on(now)

    def forget(self, key: K) -> None:
        """There is no such certificate any more."""
        self._end(key)
        self._leave(key)
        self._slots.pop(key, None)
        self._failing.pop(key, None)

    def resume(self, waited: Iterable[tuple[K, datetime | None]], now: datetime) -> list[Released[K]]:
        """After a restart: those who were waiting for the issuer, with the ends of their certificates, go on
        spread out if it works by now. Whom to wake, and when."""
        if self.is_open:
            return []
        for key, not_after in waited:
            if key not in self._waiters:
                self._hold(key, not_after, now, BACK)
        return self._spread(now)

    # --- an open circuit ------------------------------------------------------------------------------------

    def _may_probe(self, key: K, not_after: datetime | None, now: datetime) -> Hold | None:
        if self._reserved is not None and self._reserved[0] == key:
            return None
        at = self._next_probe(not_after, now)
        if self._is_reserved(now) or (now >= at and self._first(key, not_after, now) != key):
            at = max(at, now + self._pause)
        if now < at:
            return self._hold(key, not_after, at, FAILING)
        self._leave(key)
        self._reserved = (key, now)
        return None

    def _is_reserved(self, now: datetime) -> bool:
        """Whether somebody has the turn. One who is asking may take long; one who never asked loses it."""
        if self._reserved is None:
            return False
        holder, since = self._reserved
        return now < since + (_HOUR if holder in self._under_way else _RESERVED)

    def _next_probe(self, not_after: datetime | None, now: datetime) -> datetime:
        """The first moment of the next probe, if it is one whose certificate ends at `not_after`.

        The pauses double, from the shortest that keeps to the limit up to an hour, by growing with the time
        that the issuer has been failing: this way a restart need not know how many there have been.
        """
        last = self._tries.last
        if last is None or self._opened_at is None:
            return now
        pause = max(self._pause, min(last - self._opened_at, _HOUR))
        if all(cause is Cause.UNKNOWN for cause in self._failing.values()):
            # Perhaps it is about their names after all.
            pause = self._pause
        if (soonest := self._soonest(not_after, now)) is not None and soonest > last:
            pause = max(self._pause, min(pause, (soonest - last) / _PARTS))
        moments = [last + pause, self._tries.free_at(now)]
        if self._not_before is not None:
            moments.append(self._not_before)
        return max(moments)

    def _soonest(self, not_after: datetime | None, now: datetime) -> datetime | None:
        """The next end of a certificate of those who wait, or of the one that asks."""
        ends = [not_after] if not_after is not None and not_after > now else []
        for has_failed in (False, True):
            index = bisect_left(self._line, (_Place(has_failed, now, self._places),))
            if index < len(self._line):
                ends.append(self._line[index][0].not_after)
        return min((end for end in ends if end > now), default=None)

    def _first(self, asking: K, not_after: datetime | None, now: datetime) -> K:
        """Who of those that are there now goes first."""
        for place, key in list(self._present(now)):
            if self._waiters[key].promised + 2 * self._pause < now and key != asking:
                self._leave(key)
                continue
            return key if place < self._place(asking, not_after, now) else asking
        return asking

    def _present(self, now: datetime) -> Iterator[tuple[_Place, K]]:
        return ((place, key) for place, key in self._line if self._waiters[key].promised <= now)

    # --- the line -------------------------------------------------------------------------------------------

    def _place(self, key: K, not_after: datetime | None, now: datetime) -> _Place:
        held = self._waiters.get(key)
        number = held.place.number if held is not None else self._places
        return _Place(key in self._failing, not_after or now + _WITHOUT_END, number)

    def _hold(self, key: K, not_after: datetime | None, at: datetime, sentence: str) -> Hold:
        held = self._waiters.get(key)
        place = held.place if held is not None else self._stand_in_line(key, not_after, at)
        behind = bisect_left(self._line, (place,)) * self._pause
        if behind > _LOOK_AGAIN:
            behind = _LOOK_AGAIN * (1 + share(repr(key)))
        self._waiters[key] = _Waiter(place, _whole(at + behind))
        return Hold(self._waiters[key].promised, sentence)

    def _stand_in_line(self, key: K, not_after: datetime | None, at: datetime) -> _Place:
        place = self._place(key, not_after, at)
        self._places += 1
        insort(self._line, (place, key))
        return place

    def _leave(self, key: K) -> None:
        held = self._waiters.pop(key, None)
        if held is not None:
            del self._line[bisect_left(self._line, (held.place,))]

    # --- beginning and end ----------------------------------------------------------------------------------

    def _open(self, now: datetime) -> None:
        """It fails. If those that have waited are still going on: they were too fast for it."""
        self._opened_at = now
        self._proofs.clear()
        waited = {key: slot for key, slot in self._slots.items() if slot.at > now}
        self._slots.clear()
        self._slow = min(2 * self._gap, self._pause) if waited else timedelta(0)
        for key, slot in waited.items():
            self._hold(key, slot.not_after, now + self._pause, FAILING)

    def _spread(self, now: datetime) -> list[Released[K]]:
        """A moment for each that has waited: the first at once, the last in an hour or, where the issuer
        could not stand that, in a day; but nobody in more than half of what is left of its certificate. First
        go those that end within the hour, then those that have ended."""
        line, self._line = self._line, []
        self._waiters.clear()
        each = 1 / max(len(line), 1)
        self._gap = max(min(_GAP, _SPREAD * each), min(self._slow, _LONGEST_SPREAD * each))
        line.sort(key=lambda one: (_urgency(one[0].not_after, now), one[0].number))
        for number, (place, key) in enumerate(line):
            at = now + number * self._gap
            if place.not_after > now:
                at = min(at, now + (place.not_after - now) / 2)
            self._slots[key] = _Slot(_whole(at), place.not_after)
        return [Released(key, slot.at) for key, slot in self._slots.items()]

    def _room(self, now: datetime) -> int:
        """How many more may ask a closed circuit's issuer at the same time."""
        self._forget_lost(now)
        while self._proofs and now - self._proofs[0] > _FRESH:
            self._proofs.popleft()
        room = self._at_once + 2 * len(self._proofs) - len(self._under_way) - len(self._failing)
        return max(room, 0 if self._under_way else 1)

    def _let_on(self, now: datetime) -> list[Released[K]]:
        if not self._line:
            return []
        found = [Released(key, now) for _, key in self._line[: self._room(now)]]
        for one in found:
            self._leave(one.key)
        return found

    def _end(self, key: K) -> None:
        """The attempt is over, however it went."""
        self._under_way.pop(key, None)
        self._taken.discard(key)
        if self._reserved is not None and self._reserved[0] == key:
            self._reserved = None

    def _is_under_way(self, key: K, now: datetime) -> bool:
        since = self._under_way.get(key)
        return since is not None and now - since < _HOUR

    def _forget_lost(self, now: datetime) -> None:
        """Those under way for an hour: whatever they wait for, it does not tell whether the issuer works."""
        while self._under_way:
            # The order is that of their beginnings.
            key, since = next(iter(self._under_way.items()))
            if now - since < _HOUR:
                return
            del self._under_way[key]


def _urgency(not_after: datetime, now: datetime) -> datetime:
    """What has ended is less urgent than what can still be saved within the hour."""
    return not_after if not_after > now else now + _HOUR


def _whole(moment: datetime) -> datetime:
    """In whole seconds, not earlier: as it is written into conditions."""
    return moment if not moment.microsecond else moment.replace(microsecond=0) + timedelta(seconds=1)
