"""Probe issuers that fail, and record their circuit breakers.

Wakes on:  an attempt that failed; the first success after it; another replica's record; the next probe
Reads:     the breakers (`issuer_gate.py`); Issuer, ClusterIssuer
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
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.circuit_breaker import HOUR, TRIAL_LASTS, State
from certwright.controllers.issuer_gate import IssuerGate, issuer_name
from certwright.controllers.issuers import IssuerTools, SecretReader
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.toolbox import Toolbox
from certwright.issuers.table import PROBED, kind_of
from certwright.kit import logs
from certwright.kube.api.errors import Forbidden, NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.controller import Result
from certwright.resources.references import reference_to
from certwright.resources.retry import BreakerRecord, read_breaker, write_breaker
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS


class Probes:
    """Probes an issuer by its key (without a namespace: a ClusterIssuer). `acme` probes ACME issuers."""

    def __init__(
        self,
        issuers: KnownIssuers,
        tools: IssuerTools,
        *,
        acme: Callable[[ObjectKey], Awaitable[str]],
    ) -> None:
        self._issuers = issuers
        self._tools = tools
        self._acme = acme

    async def probe(self, issuer: ObjectKey) -> str:
        """Why the issuer's server does not answer, in a sentence; empty: it does."""
        reference = reference_to(issuer)
        state = self._issuers.find(reference, issuer.namespace)
        if state is None:
            return "the issuer does not exist any more"
        issuer_type = PROBED.get(kind_of(state.view.spec))
        if issuer_type is None:
            return await self._acme(issuer)
        secrets_in = self._issuers.secrets_of(reference, issuer.namespace)
        reader = SecretReader(self._tools.secrets, Dependents(), issuer)
        tools = self._tools.within(secrets_in, reader.within(secrets_in))
        return await issuer_type.probe(state.view, tools)


_log = logging.getLogger(__name__)

Probe = Callable[[ObjectKey], Awaitable[str]]
"""Send one request to the issuer's server that costs it nothing. Returns why that failed, in a sentence;
empty: it was answered."""


class BreakerReconciler:
    """Reconciles circuit breakers: probes one issuer at a time and records its breaker. `check` has the
    issuer checked again; `owns` says which issuers this replica probes."""

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
        breaker = self._gate.breaker_at(issuer)
        if breaker is None:
            return Result()
        at, owns = breaker.probe_at, self._owns(issuer)
        if at is not None and at <= self._now() and owns:
            message = await self._probe(issuer)
            self._gate.probed(issuer, is_answered=not message, message=message)
            if not message:
                # An issuer that is not ready need not wait for its next check.
                self._check(issuer)
        self._gate.call_trial(issuer)
        await self.save(issuer)
        if breaker.probe_at is not None:
            return Result(wake_at=breaker.probe_at if owns else None)
        now = self._now()
        at = breaker.trial_at(now)
        if at is not None and at <= now:
            # One of those that were called makes the trial; if none does, others are called.
            at = now + TRIAL_LASTS if breaker.waiting else None
        return Result(wake_at=at)

    async def save(self, issuer: ObjectKey) -> None:
        """Record the breaker, if the record differs. Raises what writes to the API raise."""
        informer = self._caches.issuers if issuer.namespace else self._caches.cluster_issuers
        current = informer.cache.get(issuer) if informer is not None else None
        breaker = self._gate.breaker_at(issuer)
        if current is None or breaker is None or self._is_forbidden:
            return
        stored, record, now = (
            read_breaker(current.metadata.annotations),
            breaker.record(self._now()),
            self._now(),
        )
        if record is not None and stored is not None:
            record = _merged(stored, record, now, owns=self._owns(issuer))
        if record is None and stored is not None:
            last = max((*stored.attempts, *([stored.since] if stored.since else [])), default=None)
            if last is not None and (breaker.last_success is None or breaker.last_success < last):
                # Of another replica, which knows of a later failure.
                return
        if stored == record:
            return
        _log_change(issuer, stored, record)
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


def _log_change(issuer: ObjectKey, stored: BreakerRecord | None, record: BreakerRecord | None) -> None:
    """One line when certificates begin to wait for an issuer, and one when they no longer do."""
    was_open, is_open = stored is not None and stored.is_open, record is not None and record.is_open
    name = issuer_name(issuer)
    if record is not None and is_open and not was_open:
        logs.event(
            _log,
            logging.WARNING,
            "issuer fails",
            subject=name,
            issuer=name,
            reason=record.reason,
            cause=record.message,
        )
    elif was_open and not is_open:
        logs.event(_log, logging.INFO, "issuer works again", subject=name, issuer=name)


def _merged(stored: BreakerRecord, record: BreakerRecord, now: datetime, *, owns: bool) -> BreakerRecord:
    """What replaces the record `stored`, which other replicas have written too.

    Attempts are added up. While the breaker is open, the owner, which probes, decides the rest; another
    replica only reports that its trial failed. Otherwise two replicas would overwrite each other for ever.
    """
    others = Counter(at for at in stored.attempts if now - at < HOUR)
    # Several may be of the same moment.
    attempts = tuple(sorted((others | Counter(record.attempts)).elements()))
    if not stored.is_open:
        return msgspec.structs.replace(record, attempts=attempts)
    if owns:
        return msgspec.structs.replace(record, attempts=attempts, since=stored.since or record.since)
    has_failed = (stored.state, record.state) == (State.HALF_OPEN, State.OPEN)
    return msgspec.structs.replace(
        stored, attempts=attempts, state=record.state if has_failed else stored.state
    )
