"""Whether an issuer may be asked now: a circuit breaker for each, see `circuit.py`.

What a restart and other replicas must know of an ACME issuer's breaker is recorded at the issuer
(`resources/breaker.py`; `breakers.py` writes it, and probes). That of an external issuer is made after a
start from what the Certificates say (`recall.py`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from certwright.controllers.cache.caches import Caches
from certwright.controllers.retry import recovery
from certwright.controllers.retry.backoff import Hold, is_possible
from certwright.controllers.retry.breaker import ATTEMPTS_PER_HOUR, Circuit, Released, State
from certwright.controllers.retry.recovery import History, cause_of_failure, name_of, subject_of
from certwright.controllers.retry.tries import PERIOD
from certwright.issuers.contract import Failed, Outcome, Pending, Signed
from certwright.issuers.table import WITHOUT_TRACES, kind_of
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition, ObjectKey
from certwright.resources import causes, reasons
from certwright.resources.breaker import BreakerRecord, read_breaker
from certwright.resources.causes import Cause
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.issuer_ref import IssuerReference, reference_to
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CLUSTER_ISSUERS

_log = logging.getLogger(__name__)

# Probes that follow sooner are not recorded one by one.
_WORTH_RECORDING = timedelta(seconds=15)

Wake = Callable[[ObjectKey, datetime], None]
"""Have a Certificate, and what is under way for it, looked at again at that moment."""
FindIssuer = Callable[[IssuerReference, str], Issuer | ClusterIssuer | None]
"""The issuer of our group that a reference in a namespace means; None where it does not exist."""


class Standing(NamedTuple):
    """How an issuer does, for the metrics."""

    kind: str
    namespace: str
    name: str
    state: State
    waiting: int
    last_success: datetime | None


class IssuerGate:
    """The circuits of all issuers but those that sign inside this process, which need no protection.

    `mine` selects the Certificates of this replica, to which `attempts_per_hour` applies. Raises `ValueError`
    if that is negative; 0 disables the breaker.
    """

    def __init__(
        self,
        caches: Caches,
        find_issuer: FindIssuer,
        *,
        now: Callable[[], datetime],
        attempts_per_hour: int = ATTEMPTS_PER_HOUR,
        mine: Callable[[ObjectKey], bool] | None = None,
        share_of_attempts: float = 1.0,
    ) -> None:
        Circuit[ObjectKey](attempts_per_hour)
        self._attempts_per_hour = attempts_per_hour
        self._share = share_of_attempts
        self._caches = caches
        self._find_issuer = find_issuer
        self._now = now
        self._circuits: dict[str, Circuit[ObjectKey]] = {}
        self._mine = mine or _everybody
        # Requests marked by `renew` that have not been admitted since.
        self._marked: set[ObjectKey] = set()
        self._wake: Wake = _nobody
        # Of ACME issuers whose breaker is recorded, or is to be.
        self._recorded: set[ObjectKey] = set()
        self._notify: Callable[[ObjectKey], None] = lambda _issuer: None
        self._save: Callable[[ObjectKey], Awaitable[None]] = _save_nothing

    def on_release(self, wake: Wake) -> None:
        """Call `wake` for those that need not wait for their issuer any more."""
        self._wake = wake

    def on_change(
        self, notify: Callable[[ObjectKey], None], save: Callable[[ObjectKey], Awaitable[None]]
    ) -> None:
        """Call `notify` with the key of an ACME issuer (without a namespace: of a ClusterIssuer) whose
        breaker has changed; `save` records it before it returns."""
        self._notify, self._save = notify, save

    # --- the trigger's questions ----------------------------------------------------------------------------

    def may_attempt(self, certificate: Certificate, now: datetime) -> Hold | None:
        """Whether an issuance may begin (None), or until when it waits for its issuer's sake, and why."""
        found = self._circuit_of(certificate.spec.issuer_ref, certificate.metadata.namespace)
        if found is None:
            return None
        hold = found.may_begin(certificate.metadata.key, certificate.status.not_after, now)
        return _said_of(certificate.spec.issuer_ref, hold)

    def check_at(self, certificate: Certificate) -> datetime | None:
        """When a Certificate that waits for its issuer asks again; None if it does not wait."""
        found = self._circuit_of(certificate.spec.issuer_ref, certificate.metadata.namespace)
        return found.check_at(certificate.metadata.key) if found is not None else None

    def attempted(self, certificate: Certificate, now: datetime) -> None:
        """An issuance begins. Other people's issuers are asked by that; ours when it comes to the signing."""
        reference = certificate.spec.issuer_ref
        found = self._circuit_of(reference, certificate.metadata.namespace)
        if found is not None and not reference.is_ours:
            found.asked(certificate.metadata.key, now)

    # --- before and after an issuer is asked ----------------------------------------------------------------

    def may_ask(self, request: CertificateRequest) -> Hold | None:
        """Whether the issuer may be asked for this request now. Where it may, it counts as asked.

        One that somebody wants at once need not wait, once.
        """
        reference, now = request.spec.issuer_ref, self._now()
        found = self._circuit_of(reference, request.metadata.namespace)
        if found is None:
            return None
        key, not_after = self._whose(request)
        if key not in self._marked and (hold := found.may_ask(key, not_after, now)) is not None:
            return _said_of(reference, hold)
        found.asked(key, now)
        self._changed(request)
        return None

    def may_go_on(self, request: CertificateRequest) -> Hold | None:
        """Whether the issuer may be asked now about what it has taken already: always while it works."""
        reference = request.spec.issuer_ref
        found = self._circuit_of(reference, request.metadata.namespace)
        if found is None:
            return None
        key, not_after = self._whose(request)
        if key in self._marked:
            return None
        return _said_of(reference, found.may_go_on(key, not_after, self._now()))

    def is_called(self, request: CertificateRequest, since: datetime | None) -> bool:
        """Whether the request's own pause since `since` is over, because the breaker chose it as the trial or
        because the issuer works again."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is None:
            return False
        if found.is_called(subject_of(request), self._now()):
            return True
        recovered = found.recovered_at
        return not found.is_open and recovered is not None and since is not None and recovered >= since

    def may_join(self, request: CertificateRequest) -> bool:
        """Whether a request that has another issuer to go to may go to this one. See `Circuit.may_join`."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        return found is None or found.may_join(*self._whose(request), self._now())

    def failed_at(self, request: CertificateRequest) -> datetime | None:
        """When the last attempt for the request's Certificate failed at its issuer, which has not worked
        since."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        return found.failed_at(subject_of(request)) if found is not None else None

    def leave(self, request: CertificateRequest) -> None:
        """The request goes to another issuer."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            found.leave(subject_of(request))

    async def record(self, request: CertificateRequest) -> None:
        """Return when the next attempt is recorded. Raises what writes to the API raise."""
        await self._save(_issuer_key(request.spec.issuer_ref, request.metadata.namespace))

    def is_marked(self, request: CertificateRequest) -> bool:
        """Whether `renew` marked the request, and no attempt has been made since."""
        return subject_of(request) in self._marked

    def is_doubted(self, request: CertificateRequest) -> bool:
        """Whether it must be written down that the issuer is asked, before it is: for it may be in vain."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        return found is not None and found.is_doubted

    def told(self, request: CertificateRequest, outcome: Outcome) -> None:
        """Record the outcome of a signing request; `Pending` changes nothing.

        A request that failed for good shows nothing of the issuer: it may never have been sent. What the
        issuer answered is reported to `answered`, and its own failures to `failed`.
        """
        match outcome:
            case Signed():
                self.succeeded(request)
            case Failed():
                self._marked.discard(subject_of(request))
                self.withdrawn(request)
            case Pending():
                pass

    def failed(
        self,
        request: CertificateRequest,
        cause: Cause,
        until: datetime | None = None,
        *,
        is_taken: bool = False,
        message: str = "",
    ) -> None:
        """An attempt has failed because of the issuer; `is_taken`: after it had taken the request."""
        self._marked.discard(subject_of(request))
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            key = subject_of(request)
            self._release(found.failed(key, cause, self._now(), until, is_taken=is_taken, message=message))
            self._changed(request)

    def taken(self, request: CertificateRequest) -> None:
        """The issuer has taken the request; what follows depends on its names."""
        self._marked.discard(subject_of(request))
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.taken(subject_of(request), self._now()))
            self._changed(request)

    def answered(self, request: CertificateRequest, *, is_taken: bool) -> None:
        """The issuer has refused the request, or has judged its names: it works."""
        self._marked.discard(subject_of(request))
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.answered(subject_of(request), self._now(), is_taken=is_taken))
            self._changed(request)

    def withdrawn(self, request: CertificateRequest) -> None:
        """The attempt was allowed and has not reached the issuer."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.withdrawn(subject_of(request), self._now()))

    def succeeded(self, request: CertificateRequest) -> None:
        """The issuer has issued."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.succeeded(subject_of(request), self._now()))
            self._changed(request)

    # --- what becomes of Certificates -----------------------------------------------------------------------

    def certificate_changed(self, old: Certificate | None, new: Certificate | None) -> None:
        """To be called with every change of a Certificate."""
        if old is None:
            self._hear_of_others(new)
            return
        self._hear_of_mark(old, new)
        if new is None or new.spec.issuer_ref != old.spec.issuer_ref:
            if (found := self._circuit_of(old.spec.issuer_ref, old.metadata.namespace)) is not None:
                found.forget(old.metadata.key)
            return
        if new.status.last_failure_time != old.status.last_failure_time:
            _log_failure(new)
        before, after = old.status, new.status
        if after.last_failure_time == before.last_failure_time and after.revision == before.revision:
            return
        # Of our own kinds every answer is reported where it arrives; a Certificate may be written by others.
        found = self._circuit_of(new.spec.issuer_ref, new.metadata.namespace)
        if found is None or new.spec.issuer_ref.is_ours:
            return
        if after.revision != before.revision:
            self._release(found.succeeded(new.metadata.key, self._now()))
        elif after.last_failure_time is not None:
            cause = cause_of_failure(new, self._caches)
            self._release(found.failed(new.metadata.key, cause, self._now()))

    def _hear_of_others(self, new: Certificate | None) -> None:
        """Record failures of other replicas: their Certificates enter the cache when they fail."""
        if new is None or self._mine(new.metadata.key) or not self._caches.certificates.synced.is_set():
            return
        found = self._circuit_of(new.spec.issuer_ref, new.metadata.namespace)
        is_failing = new.status.last_failure_time is not None and not new.spec.issuer_ref.is_ours
        if found is not None and is_failing:
            cause = cause_of_failure(new, self._caches)
            self._release(found.failed(new.metadata.key, cause, self._now()))

    def _hear_of_mark(self, old: Certificate, new: Certificate | None) -> None:
        if new is None or not conditions.is_true(new.status.conditions, reasons.ISSUING):
            self._marked.discard(old.metadata.key)
        elif causes.is_marked(new) and _issuing(new) != _issuing(old):
            self._marked.add(new.metadata.key)
            self._wake(new.metadata.key, self._now())

    def rebuild(self) -> None:
        """Make the circuits from the objects, once the local copies hold what the API server has."""
        now = self._now()
        self._restore_all()
        for history in recovery.histories(self._caches, now):
            found = self._circuit_of(history.reference, history.namespace)
            if found is not None:
                self._replay(found, history)
                self._release(found.resume(history.waited, now))
        for certificate in self._caches.certificates_issuing():
            if causes.is_marked(certificate):
                self._marked.add(certificate.metadata.key)

    def _restore_all(self) -> None:
        for informer in (self._caches.issuers, self._caches.cluster_issuers):
            for issuer in informer.cache.values() if informer is not None else ():
                self._restore(issuer)

    def _replay(self, circuit: Circuit[ObjectKey], history: History) -> None:
        for at, key, cause in history.since_success():
            # The attempts of others are for their own part of the hour.
            if self._mine(key):
                circuit.recall(key, at)
            self._release(circuit.failed(key, cause, at))
        if circuit.is_doubted:
            # Its attempts are recorded before they are made.
            return
        circuit.recall_untold(sum(map(self._mine, history.untold)), self._now())

    # --- the breakers of ACME issuers -----------------------------------------------------------------------

    def breaker_at(self, issuer: ObjectKey) -> Circuit[ObjectKey] | None:
        """The breaker of the ACME issuer of that key; None where it has none."""
        return self._circuit_of(reference_to(issuer), issuer.namespace)

    def breaker_of(self, reference: IssuerReference, namespace: str) -> Circuit[ObjectKey] | None:
        """The breaker of the issuer that an object of `namespace` refers to; None where it has none."""
        return self._circuit_of(reference, namespace)

    def record_of(self, issuer: ObjectKey) -> BreakerRecord | None:
        """What is to be recorded of the breaker; None: the issuer works."""
        found = self.breaker_at(issuer)
        if found is None or not (found.is_open or found.is_doubted):
            return None
        now = self._now()
        trial_at = found.trial_at(now)
        probe_at = found.probe_at
        if probe_at is not None and probe_at - now < _WORTH_RECORDING:
            probe_at = None
        return BreakerRecord(
            state=found.state.value,
            reason=found.cause,
            message=found.message,
            since=found.opened_at,
            next_probe=_seconds(probe_at),
            # One that is due waits for a certificate: there is no time to record.
            next_attempt=_seconds(trial_at) if trial_at is not None and trial_at > now else None,
            not_before=_seconds(found.not_before),
            attempts=tuple(one for one in found.attempts if now - one < PERIOD),
        )

    def probed(self, issuer: ObjectKey, *, is_answered: bool, message: str = "") -> None:
        """A probe of the issuer was sent."""
        if (found := self.breaker_at(issuer)) is not None:
            self._release(found.probed(self._now(), is_answered=is_answered, message=message))

    def call_trial(self, issuer: ObjectKey) -> None:
        """Have the first of those that wait try the issuer, if it is time."""
        if (found := self.breaker_at(issuer)) is not None:
            self._release(found.call_trial(self._now()))

    def issuer_changed(self, old: Issuer | ClusterIssuer | None, new: Issuer | ClusterIssuer | None) -> None:
        """To be called with every change of an Issuer or ClusterIssuer: another replica may have recorded
        that it fails, answers probes, or works again."""
        if old is None or new is None:
            return
        before, after = read_breaker(old.metadata.annotations), read_breaker(new.metadata.annotations)
        key, now = new.metadata.key, self._now()
        found = self.breaker_at(key) if before != after else None
        if found is None:
            return
        is_open = after is not None and after.is_open
        if after is not None and is_open:
            self._recorded.add(key)
            found.reopen(after.since or now, after.not_before, now)
            if after.state == State.HALF_OPEN.value:
                self._release(found.probed(now, is_answered=True))
            elif before is not None and before.state == State.HALF_OPEN.value:
                found.trial_failed(now)
        elif before is not None and before.is_open:
            self._release(found.close(now))
        if is_open or key in self._recorded:
            self._notify(key)

    def is_recorded(self, issuer: ObjectKey) -> bool:
        """Whether this replica has something to record of the breaker, or to remove."""
        return issuer in self._recorded

    def forget_record(self, issuer: ObjectKey) -> None:
        """The record of a breaker that has closed is removed."""
        self._recorded.discard(issuer)

    def _restore(self, issuer: Issuer | ClusterIssuer) -> None:
        """Continue from what is recorded at an issuer."""
        record, now = read_breaker(issuer.metadata.annotations), self._now()
        found = self.breaker_at(issuer.metadata.key) if record is not None else None
        if found is None or record is None:
            return
        attempts = sorted(one for one in record.attempts if is_possible(one, now))
        # Of all replicas' attempts, this one's part.
        for at in attempts[len(attempts) - math.ceil(len(attempts) * self._share) :]:
            found.recall(None, min(at, now))
        found.message = record.message
        if record.is_open:
            since = record.since if record.since is not None and is_possible(record.since, now) else now
            found.reopen(since, record.not_before, now)
        self._recorded.add(issuer.metadata.key)
        self._notify(issuer.metadata.key)

    def _changed(self, request: CertificateRequest) -> None:
        """Have the breaker recorded, if there is something to record."""
        issuer = _issuer_key(request.spec.issuer_ref, request.metadata.namespace)
        found = self.breaker_at(issuer)
        if found is not None and (found.is_open or found.is_doubted or issuer in self._recorded):
            self._recorded.add(issuer)
            self._notify(issuer)

    # --- for people -----------------------------------------------------------------------------------------

    def standings(self) -> list[Standing]:
        """How the issuers do that have been asked since the start."""
        found = []
        for text, circuit in sorted(self._circuits.items()):
            kind, namespace, name = text.split("/")[-3:]
            found.append(
                Standing(kind, namespace, name, circuit.state, circuit.waiting, circuit.last_success)
            )
        return found

    # --- inside ---------------------------------------------------------------------------------------------

    def _circuit_of(self, reference: IssuerReference, namespace: str) -> Circuit[ObjectKey] | None:
        if (
            not self._attempts_per_hour
            or reference.is_set
            or (reference.is_ours and self._is_harmless(reference, namespace))
        ):
            return None
        name = name_of(reference, namespace)
        found = self._circuits.get(name)
        if found is None:
            # Issuers of our own kinds that reach out to a server are ACME issuers.
            found = self._circuits[name] = Circuit(self._attempts_per_hour, has_probe=reference.is_ours)
        return found

    def _is_harmless(self, reference: IssuerReference, namespace: str) -> bool:
        issuer = self._find_issuer(reference, namespace)
        return issuer is None or kind_of(issuer.spec) in WITHOUT_TRACES

    def _whose(self, request: CertificateRequest) -> tuple[ObjectKey, datetime | None]:
        """The Certificate that a request belongs to, and the end of what it has now."""
        key = subject_of(request)
        certificate = self._caches.certificates.cache.get(key)
        return key, certificate.status.not_after if certificate is not None else None

    def _release(self, released: Iterable[Released[ObjectKey]]) -> None:
        for one in released:
            self._wake(one.key, one.at)


def _nobody(key: ObjectKey, at: datetime) -> None:
    del key, at


def _said_of(reference: IssuerReference, hold: Hold | None) -> Hold | None:
    if hold is None:
        return None
    kind = reference.kind_or_default
    return hold._replace(sentence=f'because {kind} "{reference.name}" {hold.sentence}')


def _log_failure(certificate: Certificate) -> None:
    """One line for each failed issuance; the backoff limits their number."""
    status, held = certificate.status, _issuing(certificate)
    if status.last_failure_time is not None and held is not None:
        _log.info(
            "issuance failed: certificate=%s issuer=%s cause=%s attempts=%d message=%r",
            certificate.metadata.key,
            name_of(certificate.spec.issuer_ref, certificate.metadata.namespace),
            held.reason,
            status.failed_issuance_attempts or 1,
            held.message,
        )


def _issuer_key(reference: IssuerReference, namespace: str) -> ObjectKey:
    is_cluster = reference.kind_or_default == CLUSTER_ISSUERS.kind
    return ObjectKey("" if is_cluster else namespace, reference.name)


def _seconds(moment: datetime | None) -> datetime | None:
    return moment.replace(microsecond=0) if moment is not None else None


async def _save_nothing(issuer: ObjectKey) -> None:
    del issuer


def _issuing(certificate: Certificate) -> Condition | None:
    return conditions.find(certificate.status.conditions, reasons.ISSUING)


def _everybody(key: ObjectKey) -> bool:
    del key
    return True
