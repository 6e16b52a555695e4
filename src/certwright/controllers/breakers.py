"""Probe ACME issuers that fail, and record their circuit breakers.

Wakes on:  an attempt that failed; the first success after it; another replica's record; the next probe
Reads:     the breakers (`gate.py`); Issuer, ClusterIssuer
Writes:    the annotation certwright.io/circuit-breaker of the issuer
Next:      the Certificates and Orders that the breaker releases; the check of the issuer

Of several replicas, the one that works on the issuer probes it; the others follow the record.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.retry.breaker_decisions import TRIAL_LASTS
from certwright.controllers.retry.gate import IssuerGate
from certwright.controllers.retry.tries import PERIOD
from certwright.controllers.toolbox import Toolbox
from certwright.kit import logs
from certwright.kube.api.errors import Forbidden, NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.controller import Result
from certwright.resources.breaker import BreakerRecord, read_breaker, write_breaker
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS

_log = logging.getLogger(__name__)

Probe = Callable[[ObjectKey], Awaitable[str]]
"""Send one request to the issuer's server that costs it nothing. Returns why that failed, in a sentence;
empty: it was answered."""


class BreakerReconciler:
    """Works on one issuer at a time. `check` has the issuer checked again; `owns` says which issuers this
    replica probes."""

    def __init__(
        self,
        gate: IssuerGate,
        caches: Caches,
        toolbox: Toolbox,
        probe: Probe,
        *,
        check: Callable[[ObjectKey], None],
        owns: Callable[[ObjectKey], bool],
    ) -> None:
        self._gate = gate
        self._caches = caches
        self._client = toolbox.client
        self._probe = probe
        self._check = check
        self._owns = owns
        self._now = toolbox.now
        self._is_forbidden = False

    async def reconcile(self, issuer: ObjectKey) -> Result:
        """Probe if it is time, call the next trial, and record the breaker."""
        breaker = self._gate.circuits.at(issuer)
        if breaker is None:
            return Result()
        at = breaker.probe_at
        if at is not None and at <= self._now() and self._owns(issuer):
            message = await self._probe(issuer)
            self._gate.probed(issuer, is_answered=not message, message=message)
            if not message:
                # An issuer that is not ready need not wait for its next check.
                self._check(issuer)
        self._gate.call_trial(issuer)
        await self.save(issuer)
        at = breaker.probe_at if self._owns(issuer) else None
        return Result(wake_at=at if at is not None else self._next_trial(issuer))

    async def save(self, issuer: ObjectKey) -> None:
        """Record the breaker, if the record differs. Raises what writes to the API raise."""
        current = self._object_of(issuer)
        if current is None or not self._gate.records.is_recorded(issuer) or self._is_forbidden:
            return
        stored, record = read_breaker(current.metadata.annotations), self._gate.records.record_of(issuer)
        if record is not None and stored is not None:
            record = _merged(stored, record, self._now(), owns=self._owns(issuer))
        if record is None:
            self._gate.records.forget_record(issuer)
        if stored == record:
            return
        _log_change(issuer, stored, record)
        self._gate.records.writing(issuer, record)
        patch: dict[str, Any] = {"metadata": {"annotations": write_breaker(record)}}
        try:
            if issuer.namespace:
                await self._client.patch(ISSUERS, issuer.name, issuer.namespace, patch)
            else:
                await self._client.patch(CLUSTER_ISSUERS, issuer.name, "", patch)
        except NotFound:
            return
        except Forbidden as error:
            self._is_forbidden = True
            _log.warning("circuit breakers are not saved, so a restart resets them: %s", error)

    def _next_trial(self, issuer: ObjectKey) -> datetime | None:
        breaker, now = self._gate.circuits.at(issuer), self._now()
        at = breaker.trial_at(now) if breaker is not None else None
        if breaker is None or at is None or at > now:
            return at
        # One of those that were called makes it; if none does, others are.
        return now + TRIAL_LASTS if breaker.called else None

    def _object_of(self, issuer: ObjectKey) -> Issuer | ClusterIssuer | None:
        if issuer.namespace:
            return self._caches.issuers.cache.get(issuer)
        informer = self._caches.cluster_issuers
        return informer.cache.get(issuer) if informer is not None else None


def _log_change(issuer: ObjectKey, stored: BreakerRecord | None, record: BreakerRecord | None) -> None:
    """One line when certificates begin to wait for an issuer, and one when they no longer do."""
    was_open, is_open = stored is not None and stored.is_open, record is not None and record.is_open
    if record is not None and is_open and not was_open:
        logs.event(
            _log,
            logging.WARNING,
            "issuer fails",
            subject=_name(issuer),
            issuer=_name(issuer),
            reason=record.reason,
            cause=record.message,
        )
    elif was_open and not is_open:
        logs.event(_log, logging.INFO, "issuer works again", subject=_name(issuer), issuer=_name(issuer))


def _name(issuer: ObjectKey) -> str:
    return f"{(ISSUERS if issuer.namespace else CLUSTER_ISSUERS).kind}/{issuer}"


def _merged(stored: BreakerRecord, record: BreakerRecord, now: datetime, *, owns: bool) -> BreakerRecord:
    """What replaces the record `stored`, which other replicas have written too.

    Attempts are added up. While the breaker is open, the owner, which probes, decides the rest; another
    replica only reports that its trial failed. Otherwise two replicas would overwrite each other for ever.
    """
    others = Counter(at for at in stored.attempts if now - at < PERIOD)
    # Several may be of the same moment.
    attempts = tuple(sorted((others | Counter(record.attempts)).elements()))
    if not stored.is_open:
        return msgspec.structs.replace(record, attempts=attempts)
    if owns:
        return msgspec.structs.replace(record, attempts=attempts, since=stored.since or record.since)
    has_failed = (stored.state, record.state) == ("HalfOpen", "Open")
    return msgspec.structs.replace(
        stored, attempts=attempts, state=record.state if has_failed else stored.state
    )
