"""The records of circuit breakers at their Issuers and ClusterIssuers: written, restored after a start, and
followed when another replica writes them.

The annotation is in `resources/breaker.py`; `controllers/breakers.py` sends the writes. An issuer of another
group has no record: its breaker is rebuilt from the Certificates (`recovery.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from certwright.controllers.cache.caches import Caches
from certwright.controllers.retry.backoff import is_possible
from certwright.controllers.retry.breaker_state import State
from certwright.controllers.retry.circuits import Circuits
from certwright.controllers.retry.tries import PERIOD
from certwright.kube.api.meta import ObjectKey
from certwright.resources.breaker import BreakerRecord, read_breaker
from certwright.resources.issuer import ClusterIssuer, Issuer

# Probes that follow sooner are not recorded one by one.
_WORTH_RECORDING = timedelta(seconds=15)
# Writes whose events are outstanding; more than this many are not in flight.
_OWN_WRITES = 16


class BreakerRecords:
    """`share_of_attempts` is this replica's part of the attempts of an hour."""

    def __init__(
        self,
        caches: Caches,
        circuits: Circuits,
        *,
        now: Callable[[], datetime],
        share_of_attempts: float = 1.0,
    ) -> None:
        self._caches = caches
        self._circuits = circuits
        self._now = now
        self._share = share_of_attempts
        # Issuers whose breaker is recorded, or is to be.
        self._recorded: set[ObjectKey] = set()
        # Records that this replica has written and whose events it has not seen.
        self._written: dict[ObjectKey, deque[BreakerRecord | None]] = {}
        self._notify: Callable[[ObjectKey], None] = lambda _issuer: None
        self._save: Callable[[ObjectKey], Awaitable[None]] = _save_nothing

    def on_change(
        self, notify: Callable[[ObjectKey], None], save: Callable[[ObjectKey], Awaitable[None]]
    ) -> None:
        """Call `notify` with the key of an issuer (without a namespace: of a ClusterIssuer) whose breaker has
        changed; `save` records it before it returns."""
        self._notify, self._save = notify, save

    async def save(self, issuer: ObjectKey) -> None:
        """Return when the breaker is recorded. Raises what writes to the API raise."""
        await self._save(issuer)

    def changed(self, issuer: ObjectKey) -> None:
        """Have the breaker recorded, if there is something to record."""
        circuit = self._circuits.at(issuer)
        if circuit is not None and (circuit.is_open or circuit.is_doubted or issuer in self._recorded):
            self._recorded.add(issuer)
            self._notify(issuer)

    def record_of(self, issuer: ObjectKey) -> BreakerRecord | None:
        """What is to be recorded of the breaker; None: the issuer works."""
        circuit = self._circuits.at(issuer)
        if circuit is None or not (circuit.is_open or circuit.is_doubted):
            return None
        now = self._now()
        trial_at = circuit.trial_at(now)
        probe_at = circuit.probe_at
        if probe_at is not None and probe_at - now < _WORTH_RECORDING:
            probe_at = None
        return BreakerRecord(
            state=circuit.state.value,
            reason=circuit.cause,
            message=circuit.message,
            since=circuit.opened_at,
            next_probe=_seconds(probe_at),
            # One that is due waits for a certificate: there is no time to record.
            next_attempt=_seconds(trial_at) if trial_at is not None and trial_at > now else None,
            not_before=_seconds(circuit.not_before),
            attempts=tuple(attempt for attempt in circuit.attempts if now - attempt < PERIOD),
        )

    def is_recorded(self, issuer: ObjectKey) -> bool:
        """Whether this replica has something to record of the breaker, or to remove."""
        return issuer in self._recorded

    def forget_record(self, issuer: ObjectKey) -> None:
        """The record of a breaker that has closed is removed."""
        self._recorded.discard(issuer)

    def writing(self, issuer: ObjectKey, record: BreakerRecord | None) -> None:
        """To be called before this replica writes a record, so that its watch event is known as its own."""
        self._written.setdefault(issuer, deque(maxlen=_OWN_WRITES)).append(record)

    def _is_own(self, issuer: ObjectKey, record: BreakerRecord | None) -> bool:
        """Whether this replica has written the record. It is older than the breaker, then."""
        written = self._written.get(issuer, deque())
        if record not in written:
            return False
        while written.popleft() != record:
            pass
        return True

    def issuer_changed(self, old: Issuer | ClusterIssuer | None, new: Issuer | ClusterIssuer | None) -> None:
        """To be called with every change of an Issuer or ClusterIssuer: another replica may have recorded
        that it fails, answers probes, or works again."""
        if old is None or new is None:
            return
        before, after = read_breaker(old.metadata.annotations), read_breaker(new.metadata.annotations)
        key, now = new.metadata.key, self._now()
        circuit = self._circuits.at(key) if before != after else None
        if circuit is None:
            return
        if self._is_own(key, after):
            # The breaker may have changed since: what is recorded is compared with it again.
            self._recorded.add(key)
            self._notify(key)
            return
        is_open = after is not None and after.is_open
        if after is not None and is_open:
            self._recorded.add(key)
            circuit.reopen(after.since or now, after.not_before, now)
            if after.state == State.HALF_OPEN.value:
                self._circuits.release(circuit.probed(now, is_answered=True))
            elif before is not None and before.state == State.HALF_OPEN.value:
                circuit.trial_failed(now)
        elif before is not None and before.is_open:
            self._circuits.release(circuit.close(now))
        if is_open or key in self._recorded:
            self._notify(key)

    def restore(self) -> None:
        """Continue from what is recorded at all issuers."""
        for informer in (self._caches.issuers, self._caches.cluster_issuers):
            for issuer in informer.cache.values() if informer is not None else ():
                self._restore(issuer)

    def _restore(self, issuer: Issuer | ClusterIssuer) -> None:
        """Continue from what is recorded at an issuer."""
        record, now = read_breaker(issuer.metadata.annotations), self._now()
        circuit = self._circuits.at(issuer.metadata.key) if record is not None else None
        if circuit is None or record is None:
            return
        attempts = sorted(attempt for attempt in record.attempts if is_possible(attempt, now))
        # Of all replicas' attempts, this one's part.
        for at in attempts[len(attempts) - math.ceil(len(attempts) * self._share) :]:
            circuit.recall(None, min(at, now))
        circuit.message = record.message
        if record.is_open:
            since = record.since if record.since is not None and is_possible(record.since, now) else now
            circuit.reopen(since, record.not_before, now)
        self._recorded.add(issuer.metadata.key)
        self._notify(issuer.metadata.key)


def _seconds(moment: datetime | None) -> datetime | None:
    return moment.replace(microsecond=0) if moment is not None else None


async def _save_nothing(issuer: ObjectKey) -> None:
    del issuer
