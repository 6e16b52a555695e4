"""Admission of requests to issuers: the circuit breakers of all issuers, for the controllers.

A breaker (`circuit_breaker.py`) exists for each Issuer and ClusterIssuer that sends requests to a server.
Issuers that sign in this process need none; for an issuer of another group, each Certificate has its backoff
(`backoff.py`). Failing issuers are probed, and their breakers are recorded in the annotation
certwright.io/circuit-breaker. Of several replicas, the replica that works on the issuer probes it; the others
follow the record.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import is_finished, owner_value
from certwright.controllers.cache.shard_filter import owning_certificate, owning_request
from certwright.controllers.circuit_breaker import (
    ATTEMPTS_PER_HOUR,
    HOUR,
    TRIAL_LASTS,
    CircuitBreaker,
    Hold,
    State,
)
from certwright.issuers.contract import Failed, Outcome, Pending, Signed
from certwright.issuers.table import WITHOUT_TRACES, kind_of
from certwright.kit import logs
from certwright.kube.api import conditions
from certwright.kube.api.errors import Forbidden, NotFound
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import Object, ObjectKey, is_controlled_by
from certwright.kube.client.rest import Client
from certwright.kube.runtime.controller import Result
from certwright.resources import causes, reasons
from certwright.resources.causes import Cause
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.references import IssuerReference, reference_to
from certwright.resources.request import CertificateRequest
from certwright.resources.retry import BreakerRecord, read_breaker, write_breaker
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS

_REQUEST: Final = "certificaterequest/"
_SIGNING_REQUEST: Final = "certificatesigningrequest/"

CHECK_BREAKER: Final = timedelta(seconds=1)
"""After a failure of the issuer: the next pass asks the breaker until when the request waits."""
ISSUER_FAILING: Final = "IssuerFailing"
"""Reason of the Event of a request that waits for the breaker."""

FindIssuer = Callable[[IssuerReference, str], Issuer | ClusterIssuer | None]
"""The issuer of our group that a reference in a namespace means; None where it does not exist."""
Mine = Callable[[ObjectKey], bool]
Probe = Callable[[ObjectKey], Awaitable[str]]
"""Send one request to the issuer's server that costs it nothing. Returns why that failed, in a sentence;
empty: it was answered."""

_log = logging.getLogger(__name__)


class Applicant(NamedTuple):
    """A Certificate, or a request without a Certificate, and the issuer that its reference means in
    `namespace`. All requests of a Certificate are one applicant. The key of a request has a slash in its
    name, which no Certificate's key has."""

    issuer: IssuerReference
    namespace: str
    key: ObjectKey


def applicant_of(request: CertificateRequest, member: IssuerReference | None = None) -> Applicant:
    """The applicant of a CertificateRequest at its issuer, or at that member of its set."""
    return Applicant(member or request.spec.issuer_ref, request.metadata.namespace, key_of(request))


def signing_applicant(issuer: IssuerReference, namespace: str, name: str) -> Applicant:
    """The applicant of a CertificateSigningRequest, which has no namespace; `namespace` is the issuer's."""
    return Applicant(issuer, namespace, key_of_signing_request(name))


def key_of(request: CertificateRequest) -> ObjectKey:
    """The applicant's key of a request: the key of its Certificate, or `key_of_request`."""
    key, name = request.metadata.key, owning_certificate(request)
    return ObjectKey(key.namespace, name) if name is not None else key_of_request(key)


def key_of_request(request: ObjectKey) -> ObjectKey:
    """The applicant's key of a CertificateRequest without a Certificate."""
    return ObjectKey(request.namespace, f"{_REQUEST}{request.name}")


def key_of_signing_request(name: str) -> ObjectKey:
    """The applicant's key of a CertificateSigningRequest."""
    return ObjectKey("", f"{_SIGNING_REQUEST}{name}")


def request_of(applicant: ObjectKey) -> ObjectKey | None:
    """The CertificateRequest with that applicant's key; None: the key is another object's."""
    name = applicant.name.removeprefix(_REQUEST)
    return ObjectKey(applicant.namespace, name) if name != applicant.name else None


def signing_request_of(applicant: ObjectKey) -> ObjectKey | None:
    """The CertificateSigningRequest with that applicant's key; None: the key is another object's."""
    name = applicant.name.removeprefix(_SIGNING_REQUEST)
    return ObjectKey("", name) if name != applicant.name else None


def issuance_of(caches: Caches, applicant: ObjectKey) -> Iterator[tuple[str, ObjectKey]]:
    """The objects of an applicant's issuance, each with the name of its controller: the applicant, its open
    request, the request's Orders, their Challenges."""
    owners: list[Object] = []
    if (request_key := request_of(applicant)) is not None:
        requests = [caches.requests.cache.get(request_key)]
    elif (signing_key := signing_request_of(applicant)) is not None:
        requests = []
        yield "certificatesigningrequests", signing_key
        informer = caches.signing_requests
        if informer is not None and (signing_request := informer.cache.get(signing_key)) is not None:
            owners.append(signing_request)
    else:
        requests = list(caches.requests_of(owner_value(*applicant)))
        yield "certificates", applicant
    for request in requests:
        if request is not None and not is_finished(request):
            yield "certificaterequests", request.metadata.key
            owners.append(request)
    for owner in owners:
        for order in caches.orders_of(owner.metadata):
            yield "orders", order.metadata.key
            for challenge in caches.challenges_of(order.metadata):
                yield "challenges", challenge.metadata.key


def issuer_name(issuer: ObjectKey) -> str:
    """The kind, namespace and name of the Issuer of that key (without a namespace: ClusterIssuer)."""
    return f"{_kind_of(issuer).kind}/{issuer}"


def _kind_of(issuer: ObjectKey) -> AnyKind:
    return ISSUERS if issuer.namespace else CLUSTER_ISSUERS


class BreakerStatus(NamedTuple):
    """The state of an issuer's breaker, for the metrics."""

    kind: str
    namespace: str
    name: str
    state: State
    waiting: int
    last_success: datetime | None


class IssuerGate:
    """The circuit breakers of all issuers: they admit attempts, and are reconciled by issuer.
    `attempts_per_hour` 0 disables them. `mine` selects the Certificates and issuers of this replica. Raises
    `ValueError` if `attempts_per_hour` is negative.

    An attempt that `admit` has admitted ends with `withdraw` or a `record_…`; `report` calls the right one
    for the outcome of a signature.
    """

    def __init__(
        self,
        client: Client,
        caches: Caches,
        find_issuer: FindIssuer,
        *,
        now: Callable[[], datetime],
        attempts_per_hour: int = ATTEMPTS_PER_HOUR,
        mine: Mine | None = None,
    ) -> None:
        if attempts_per_hour < 0:
            raise ValueError("the number of attempts per issuer and hour must not be negative")
        self._client = client
        self._caches = caches
        self._find_issuer = find_issuer
        self._now = now
        self._attempts_per_hour = attempts_per_hour
        self._mine = mine or (lambda _key: True)
        # By the key of the issuer; that of a ClusterIssuer has no namespace.
        self._breakers: dict[ObjectKey, CircuitBreaker] = {}
        # Certificates marked by `renew` for which no attempt has been made since.
        self._marked: set[ObjectKey] = set()
        self._wake: Callable[[ObjectKey], None] = lambda _key: None
        self._enqueue: Callable[[ObjectKey], None] = lambda _issuer: None
        self._probe: Probe | None = None
        self._is_forbidden = False

    def on_release(self, wake: Callable[[ObjectKey], None]) -> None:
        """Call `wake` with the key of each applicant that may ask again."""
        self._wake = wake

    def start(
        self, enqueue: Callable[[ObjectKey], None], probe: Probe, check: Callable[[ObjectKey], None]
    ) -> None:
        """From now on, call `enqueue` with the key of an issuer to reconcile. `probe` sends a request to an
        issuer's server; `check` has an issuer checked."""
        self._enqueue, self._probe, self._check = enqueue, probe, check
        for informer in self._caches.issuer_informers:
            informer.add_handler(self._issuer_changed)

    def breaker_at(self, issuer: ObjectKey) -> CircuitBreaker | None:
        """The breaker of the Issuer of that key (without a namespace: ClusterIssuer); None: it has none."""
        return self.breaker_of(reference_to(issuer), issuer.namespace)

    def breaker_of(self, reference: IssuerReference, namespace: str) -> CircuitBreaker | None:
        """The breaker of the issuer that an object of `namespace` refers to; None where it has none."""
        if not self._attempts_per_hour or not reference.is_ours:
            return None
        issuer = self._find_issuer(reference, namespace)
        if issuer is None or kind_of(issuer.spec) in WITHOUT_TRACES:
            return None
        key = issuer.metadata.key
        if key not in self._breakers:
            self._breakers[key] = CircuitBreaker(self._attempts_per_hour)
        return self._breakers[key]

    def states(self) -> list[BreakerStatus]:
        """The states of the issuers that have been used since the start."""
        return [
            BreakerStatus(
                _kind_of(key).kind,
                key.namespace,
                key.name,
                breaker.state,
                breaker.waiting,
                breaker.last_success,
            )
            for key, breaker in sorted(self._breakers.items())
        ]

    # --- questions ------------------------------------------------------------------------------------------

    def hold_of(self, certificate: Certificate, now: datetime) -> Hold | None:
        """Why an issuance may not begin, because of its issuer; None: it may begin. An issuance that may not
        is notified when it may."""
        reference, meta = certificate.spec.issuer_ref, certificate.metadata
        breaker = self.breaker_of(reference, meta.namespace)
        hold = breaker.may_begin(meta.key, now) if breaker is not None else None
        if breaker is None or hold is None:
            return None
        breaker.wait(meta.key)
        return _about(reference, hold)

    def admit(self, applicant: Applicant) -> Hold | None:
        """Start an attempt (None), or return why and until when it must wait. An attempt that a user demands
        (`renew`) need not wait, once. The caller MUST await `record` before it sends the request."""
        breaker, now = self._breaker(applicant), self._now()
        if breaker is None:
            return None
        is_marked = applicant.key in self._marked
        if not is_marked and (hold := breaker.may_attempt(applicant.key, now)) is not None:
            breaker.wait(applicant.key)
            return _about(applicant.issuer, hold)
        breaker.start_attempt(applicant.key, now, out_of_turn=is_marked)
        if breaker.is_doubted:
            self._enqueue(_issuer_key(applicant))
        return None

    def admit_continuation(self, applicant: Applicant) -> Hold | None:
        """Whether the issuer may be asked now about a request that it has accepted: always while it works."""
        breaker, now = self._breaker(applicant), self._now()
        if breaker is None or applicant.key in self._marked:
            return None
        if (hold := breaker.may_continue(applicant.key, now)) is not None:
            breaker.wait(applicant.key)
            return _about(applicant.issuer, hold)
        breaker.continue_request(applicant.key, now)
        return None

    def may_join(self, applicant: Applicant) -> bool:
        """Whether a request that could go to another issuer may go to this issuer: it works, or the request
        is its next trial."""
        breaker = self._breaker(applicant)
        return breaker is None or breaker.may_begin(applicant.key, self._now()) is None

    def ends_pause(self, applicant: Applicant, since: datetime | None) -> bool:
        """Whether the request's own pause, which began at `since`, ends now: a user demands the request
        (`renew`), the request may make the trial, or the issuer works again."""
        breaker = self._breaker(applicant)
        if breaker is None or applicant.key in self._marked:
            return breaker is not None
        if breaker.is_open:
            return breaker.may_begin(applicant.key, self._now()) is None
        return breaker.recovered_at is not None and since is not None and breaker.recovered_at >= since

    def is_doubted(self, applicant: Applicant) -> bool:
        """Whether an attempt MUST be recorded before it is made, because the issuer may be failing."""
        breaker = self._breaker(applicant)
        return breaker is not None and breaker.is_doubted

    def failed_at(self, applicant: Applicant) -> datetime | None:
        """When the last attempt for the request's Certificate failed, if its issuer has not worked since."""
        breaker = self._breaker(applicant)
        return breaker.failed_at(applicant.key) if breaker is not None else None

    async def record(self, applicant: Applicant) -> None:
        """Record the attempt, if the issuer may be failing. Raises what writes to the API raise."""
        if self.is_doubted(applicant):
            await self._save(_issuer_key(applicant))

    # --- several issuers ------------------------------------------------------------------------------------

    def join(self, applicant: Applicant) -> None:
        """Have the request go to this issuer as its trial."""
        if (breaker := self._breaker(applicant)) is not None:
            breaker.begin_trial(applicant.key, self._now())

    def leave(self, applicant: Applicant) -> None:
        """Record that the request goes to another issuer."""
        if (breaker := self._breaker(applicant)) is not None:
            breaker.leave(applicant.key)

    def forget(self, key: ObjectKey) -> None:
        """Remove the applicant: its object is deleted, or needs no certificate."""
        self._marked.discard(key)
        for breaker in self._breakers.values():
            breaker.forget(key)

    # --- how an attempt ends --------------------------------------------------------------------------------

    def finished(self, applicant: Applicant, outcome: Outcome) -> None:
        """Record the outcome of a request to an ACME issuer, whose Orders report their attempts themselves.

        A request that failed for good shows nothing about the issuer: it may never have been sent.
        """
        if isinstance(outcome, Signed):
            self.record_success(applicant)
        elif isinstance(outcome, Failed):
            self._marked.discard(applicant.key)
            self.withdraw(applicant)

    def report(self, applicant: Applicant, outcome: Outcome) -> None:
        """Record the outcome of an attempt at an issuer that signs while the request is reconciled."""
        match outcome:
            case Signed():
                self.record_success(applicant)
            case Failed(cause=Cause.INVALID_REQUEST):
                self.record_answer(applicant, is_taken=False)
            case Pending(cause=cause, not_before=until) if cause is not None:
                self.record_failure(applicant, cause, until, message=outcome.message)
            case Pending(is_taken=True):
                self.record_acceptance(applicant)
            case _:
                # It was not sent: a Secret is missing.
                self.withdraw(applicant)

    def record_failure(
        self,
        applicant: Applicant,
        cause: Cause,
        until: datetime | None = None,
        *,
        is_taken: bool = False,
        message: str = "",
    ) -> None:
        """Record that the attempt failed because of the issuer. `is_taken`: it had accepted the request."""
        self._end(
            applicant,
            lambda breaker, key, now: breaker.record_failure(
                key, cause, now, until, is_taken=is_taken, message=message
            ),
        )

    def record_acceptance(self, applicant: Applicant) -> None:
        """Record that the issuer has accepted the request; the result depends on the names."""
        self._end(applicant, CircuitBreaker.record_acceptance)

    def record_answer(self, applicant: Applicant, *, is_taken: bool) -> None:
        """Record that the issuer has refused the request, or has judged its names: it works."""
        self._end(applicant, partial(CircuitBreaker.record_answer, is_taken=is_taken))

    def record_success(self, applicant: Applicant) -> None:
        """Record that the issuer has issued."""
        self._end(applicant, CircuitBreaker.record_success)

    def withdraw(self, applicant: Applicant) -> None:
        """Record that the admitted attempt did not reach the issuer."""
        if (breaker := self._breaker(applicant)) is not None:
            self._release(breaker.withdraw(applicant.key, self._now()))

    def _end(
        self,
        applicant: Applicant,
        end: Callable[[CircuitBreaker, ObjectKey, datetime], Iterable[ObjectKey]],
    ) -> None:
        self._marked.discard(applicant.key)
        if (breaker := self._breaker(applicant)) is None:
            return
        self._release(end(breaker, applicant.key, self._now()))
        # There may be something to record, or to remove.
        issuer = self._find_issuer(applicant.issuer, applicant.namespace)
        is_recorded = issuer is not None and read_breaker(issuer.metadata.annotations) is not None
        if breaker.is_open or breaker.is_doubted or is_recorded:
            self._enqueue(_issuer_key(applicant))

    # --- probes and records ---------------------------------------------------------------------------------

    async def reconcile(self, issuer: ObjectKey) -> Result:
        """Probe the issuer if it is time, call the next trial, and record the breaker."""
        breaker = self.breaker_at(issuer)
        if breaker is None or self._probe is None:
            return Result()
        at, owns = breaker.probe_at, self._mine(issuer)
        if at is not None and at <= self._now() and owns:
            message = await self._probe(issuer)
            self._release(breaker.probed(self._now(), is_answered=not message, message=message))
            if not message:
                # An issuer that is not ready need not wait for its next check.
                self._check(issuer)
        # The first of the applicants that wait try the issuer, if it is time.
        self._release(breaker.call_trial(self._now()))
        await self._save(issuer)
        if breaker.probe_at is not None:
            return Result(wake_at=breaker.probe_at if owns else None)
        now = self._now()
        at = breaker.trial_at(now)
        if at is not None and at <= now:
            # One of the notified applicants makes the trial; if none does, others are notified.
            at = now + TRIAL_LASTS if breaker.waiting else None
        return Result(wake_at=at)

    def checked(self, issuer: ObjectKey) -> None:
        """Record that the issuer's server has answered a check, which shows as much as an answered probe."""
        breaker = self.breaker_at(issuer)
        if breaker is not None and breaker.probe_at is not None:
            self._release(breaker.probed(self._now(), is_answered=True))
            self._enqueue(issuer)

    async def _save(self, issuer: ObjectKey) -> None:
        """Record the breaker, if the record differs. Raises what writes to the API raise."""
        informer = self._caches.issuers_of(_kind_of(issuer).kind)
        current = informer.cache.get(issuer) if informer is not None else None
        breaker, now = self.breaker_at(issuer), self._now()
        if current is None or breaker is None or self._is_forbidden:
            return
        stored, record = read_breaker(current.metadata.annotations), breaker.record(now)
        if record is not None and stored is not None:
            record = _merged(stored, record, now, owns=self._mine(issuer))
        if record is None and stored is not None:
            last = max((*stored.attempts, *([stored.since] if stored.since else [])), default=None)
            if last is not None and (breaker.last_success is None or breaker.last_success < last):
                # Another replica has recorded a later failure.
                return
        if stored == record:
            return
        _log_change(issuer, stored, record)
        patch: dict[str, Any] = {"metadata": {"annotations": write_breaker(record)}}
        try:
            await self._client.patch(_kind_of(issuer), issuer.name, issuer.namespace, patch)
        except NotFound:
            return
        except Forbidden as error:
            self._is_forbidden = True
            _log.warning("circuit breakers are not saved, so a restart resets them: %s", error)

    # --- events and restart ---------------------------------------------------------------------------------

    def certificate_changed(self, old: Certificate | None, new: Certificate | None) -> None:
        """Handle a change of a Certificate; to be called with every change."""
        if old is None:
            return
        key, reference = old.metadata.key, old.spec.issuer_ref
        if new is None or not conditions.is_true(new.status.conditions, reasons.ISSUING):
            self._marked.discard(key)
        elif causes.is_marked(new):
            before, after = (conditions.find(each.status.conditions, reasons.ISSUING) for each in (old, new))
            if before != after:
                self._marked.add(key)
                self._wake(key)
        breaker = self.breaker_of(reference, key.namespace)
        if breaker is not None and (new is None or new.spec.issuer_ref != reference):
            breaker.forget(key)

    def _issuer_changed(self, old: Issuer | ClusterIssuer | None, new: Issuer | ClusterIssuer | None) -> None:
        """Follow another replica's record: the issuer fails, answers probes, or works again."""
        if old is None:
            return
        if new is None or kind_of(new.spec) in WITHOUT_TRACES:
            unused = self._breakers.pop(old.metadata.key, None)
            self._release(unused.close(self._now()) if unused is not None else ())
            return
        before, after = read_breaker(old.metadata.annotations), read_breaker(new.metadata.annotations)
        breaker = self.breaker_at(new.metadata.key) if before != after else None
        if breaker is not None:
            self._release(breaker.follow(before, after, self._now()))
            # The breaker may have changed since the record was written.
            self._enqueue(new.metadata.key)

    def rebuild(self) -> None:
        """Restore the breakers from their records, once the caches are in sync with the API server."""
        now = self._now()
        for informer in self._caches.issuer_informers:
            for issuer in informer.cache.values():
                record = read_breaker(issuer.metadata.annotations)
                breaker = self.breaker_at(issuer.metadata.key) if record is not None else None
                if record is not None and breaker is not None:
                    breaker.restore(record, now)
                    self._enqueue(issuer.metadata.key)
        for issuer_key, count in self._unrecorded().items():
            if (breaker := self.breaker_at(issuer_key)) is not None:
                breaker.add_unrecorded(count, now)
        for certificate in self._caches.certificates_issuing():
            if causes.is_marked(certificate):
                self._marked.add(certificate.metadata.key)

    def _unrecorded(self) -> Counter[ObjectKey]:
        """How many attempts each CA may have been sent without a record. An Order without a URL counts once
        for each open request of this replica, because the owner of a namespace may write any number of
        Orders."""
        applicants = set()
        for order in self._caches.orders.cache.values():
            owner = owning_request(order) if not order.status.is_final and not order.status.url else None
            request = self._caches.requests.cache.get(owner) if owner is not None else None
            if request is None or is_finished(request) or not self._mine(key_of(request)):
                continue
            if is_controlled_by(order.metadata, request.metadata.uid):
                applicants.add(applicant_of(request, order.spec.issuer_ref))
        return Counter(map(_issuer_key, applicants))

    # --- parts ----------------------------------------------------------------------------------------------

    def _breaker(self, applicant: Applicant) -> CircuitBreaker | None:
        return self.breaker_of(applicant.issuer, applicant.namespace)

    def _release(self, released: Iterable[ObjectKey]) -> None:
        for key in released:
            self._wake(key)


def _about(reference: IssuerReference, hold: Hold) -> Hold:
    sentence = f'because {reference.kind_or_default} "{reference.name}" {hold.sentence}'
    return hold._replace(sentence=sentence)


def _issuer_key(applicant: Applicant) -> ObjectKey:
    is_cluster = applicant.issuer.kind_or_default == CLUSTER_ISSUERS.kind
    return ObjectKey("" if is_cluster else applicant.namespace, applicant.issuer.name)


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
    """The record to write in place of `stored`, which other replicas have written too.

    Attempts are added up. While the breaker is open, its owner, which probes, decides the rest; another
    replica only reports that its trial failed. Otherwise two replicas would overwrite each other's records
    for ever.
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
