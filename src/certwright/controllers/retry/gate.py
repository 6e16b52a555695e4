"""Whether an issuer may be sent a request now: the controllers' side of the circuit breakers (`breaker.py`).

`may_begin`, `may_attempt`, `may_continue` and `may_join` are questions: they change nothing. The caller acts
on an answer in the same step of the event loop: `begin`, `start_attempt`, `continue_request` or `join`; else
`wait`. Each attempt ends with one of `succeeded`, `taken`, `answered`, `failed` and `withdrawn`.

What a restart and other replicas must know of the breaker of an issuer of ours is recorded at the issuer
(`breaker_records.py`). That of an external issuer is rebuilt after a start from the Certificates
(`recovery.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from certwright.controllers.cache.caches import Caches
from certwright.controllers.retry import recovery
from certwright.controllers.retry.applicants import Applicant
from certwright.controllers.retry.backoff import Hold
from certwright.controllers.retry.breaker import Circuit
from certwright.controllers.retry.breaker_records import BreakerRecords
from certwright.controllers.retry.circuits import Circuits
from certwright.controllers.retry.recovery import History, cause_of_failure
from certwright.issuers.contract import Failed, Outcome, Pending, Signed
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition, ObjectKey
from certwright.resources import causes, reasons
from certwright.resources.causes import Cause
from certwright.resources.certificate import Certificate
from certwright.resources.references import IssuerReference
from certwright.resources.table import CLUSTER_ISSUERS


class IssuerGate:
    """Finds the breaker of an object's issuer, and what identifies the object there.

    `mine` selects the Certificates of this replica, whose attempts count against its part of the hour.
    """

    def __init__(
        self,
        caches: Caches,
        circuits: Circuits,
        records: BreakerRecords,
        *,
        now: Callable[[], datetime],
        mine: Callable[[ObjectKey], bool] | None = None,
    ) -> None:
        self.circuits = circuits
        self.records = records
        self._caches = caches
        self._now = now
        self._mine = mine or _all
        # Certificates marked by `renew` for which no attempt has been made since.
        self._marked: set[ObjectKey] = set()

    # --- Certificates ---------------------------------------------------------------------------------------

    def may_begin(self, certificate: Certificate, now: datetime) -> Hold | None:
        """Whether an issuance may begin (None), or until when it waits because of its issuer, and why."""
        circuit = self._circuit_of_certificate(certificate)
        if circuit is None:
            return None
        hold = circuit.may_begin(certificate.metadata.key, certificate.status.not_after, now)
        return _about(certificate.spec.issuer_ref, hold)

    def begin(self, certificate: Certificate, now: datetime) -> None:
        """The issuance begins: it takes the turn, if only one at a time may try the issuer."""
        if (circuit := self._circuit_of_certificate(certificate)) is not None:
            circuit.begin(certificate.metadata.key, now)

    def wait(self, certificate: Certificate, hold: Hold, now: datetime) -> None:
        """The issuance waits in its place."""
        if (circuit := self._circuit_of_certificate(certificate)) is not None:
            circuit.wait(certificate.metadata.key, certificate.status.not_after, hold.until, now)

    def begun(self, certificate: Certificate, now: datetime) -> None:
        """The start of the issuance is written. That is the attempt at an external issuer; at those of our
        kinds the attempt is made when it comes to the signing."""
        reference = certificate.spec.issuer_ref
        circuit = self._circuit_of_certificate(certificate)
        if circuit is not None and not reference.is_ours:
            circuit.start_attempt(certificate.metadata.key, now)

    def check_at(self, certificate: Certificate) -> datetime | None:
        """When a Certificate that waits for its issuer asks again; None if it does not wait."""
        circuit = self._circuit_of_certificate(certificate)
        return circuit.check_at(certificate.metadata.key) if circuit is not None else None

    # --- requests: questions --------------------------------------------------------------------------------

    def may_attempt(self, applicant: Applicant) -> Hold | None:
        """Whether the request may be sent to the issuer now. One that a user demands (`renew`) need not wait,
        once."""
        circuit = self._circuit_of(applicant)
        if circuit is None or self.is_marked(applicant):
            return None
        hold = circuit.may_attempt(applicant.key, self._expiry(applicant), self._now())
        return _about(applicant.issuer, hold)

    def may_continue(self, applicant: Applicant) -> Hold | None:
        """Whether the issuer may be asked now about what it has taken already: always while it works."""
        circuit = self._circuit_of(applicant)
        if circuit is None or self.is_marked(applicant):
            return None
        hold = circuit.may_continue(applicant.key, self._expiry(applicant), self._now())
        return _about(applicant.issuer, hold)

    def may_join(self, applicant: Applicant) -> bool:
        """Whether a request that has another issuer to go to may go to this one: it works, or this request is
        its next trial."""
        circuit = self._circuit_of(applicant)
        return circuit is None or circuit.may_join(applicant.key, self._expiry(applicant), self._now())

    def is_called(self, applicant: Applicant, since: datetime | None) -> bool:
        """Whether the request's own pause since `since` is over, because the breaker chose it as the trial or
        because the issuer works again."""
        circuit = self._circuit_of(applicant)
        if circuit is None:
            return False
        if circuit.is_called(applicant.key, self._now()):
            return True
        recovered = circuit.recovered_at
        return not circuit.is_open and recovered is not None and since is not None and recovered >= since

    def is_marked(self, applicant: Applicant) -> bool:
        """Whether `renew` marked the request, and no attempt has been made since."""
        return applicant.key in self._marked

    def is_doubted(self, applicant: Applicant) -> bool:
        """Whether an attempt MUST be recorded before it is made, because it may be in vain."""
        circuit = self._circuit_of(applicant)
        return circuit is not None and circuit.is_doubted

    def failed_at(self, applicant: Applicant) -> datetime | None:
        """When the last attempt for the request's Certificate failed at its issuer, which has not worked
        since."""
        circuit = self._circuit_of(applicant)
        return circuit.failed_at(applicant.key) if circuit is not None else None

    # --- requests: what follows from an answer --------------------------------------------------------------

    def hold(self, applicant: Applicant, hold: Hold) -> None:
        """The request waits in its place."""
        if (circuit := self._circuit_of(applicant)) is not None:
            circuit.wait(applicant.key, self._expiry(applicant), hold.until, self._now())

    def start_attempt(self, applicant: Applicant) -> None:
        """The request is sent to the issuer."""
        if (circuit := self._circuit_of(applicant)) is not None:
            circuit.start_attempt(applicant.key, self._now(), out_of_turn=self.is_marked(applicant))
            self._changed(applicant)

    def continue_request(self, applicant: Applicant) -> None:
        """The issuer is asked about what it has taken."""
        circuit = self._circuit_of(applicant)
        if circuit is not None and not self.is_marked(applicant):
            circuit.continue_request(applicant.key, self._now())

    def join(self, applicant: Applicant) -> None:
        """The request goes to this issuer, and has its turn."""
        circuit = self._circuit_of(applicant)
        if circuit is not None and circuit.is_open:
            circuit.begin(applicant.key, self._now())

    def leave(self, applicant: Applicant) -> None:
        """The request goes to another issuer."""
        if (circuit := self._circuit_of(applicant)) is not None:
            circuit.leave(applicant.key)

    def forget(self, key: ObjectKey) -> None:
        """The object with that applicant's key does not exist any more, or needs no certificate."""
        self._marked.discard(key)
        self.circuits.forget(key)
        self.circuits.drop_unused(self._now())

    async def record(self, applicant: Applicant) -> None:
        """Return when the attempt is recorded. Raises what writes to the API raise."""
        await self.records.save(_issuer_key(applicant))

    # --- requests: how an attempt ends ----------------------------------------------------------------------

    def finished(self, applicant: Applicant, outcome: Outcome) -> None:
        """Record the outcome of a signing request; `Pending` changes nothing.

        A request that failed for good shows nothing of the issuer: it may never have been sent. What the
        issuer answered is reported to `answered`, and its own failures to `failed`.
        """
        match outcome:
            case Signed():
                self.succeeded(applicant)
            case Failed():
                self._marked.discard(applicant.key)
                self.withdrawn(applicant)
            case Pending():
                pass

    def failed(
        self,
        applicant: Applicant,
        cause: Cause,
        until: datetime | None = None,
        *,
        is_taken: bool = False,
        message: str = "",
    ) -> None:
        """The attempt failed because of the issuer; `is_taken`: after it had taken the request."""
        self._marked.discard(applicant.key)
        if (circuit := self._circuit_of(applicant)) is not None:
            key, now = applicant.key, self._now()
            released = circuit.failed(key, cause, now, until, is_taken=is_taken, message=message)
            self.circuits.release(released)
            self._changed(applicant)

    def taken(self, applicant: Applicant) -> None:
        """The issuer has taken the request; what follows depends on its names."""
        self._marked.discard(applicant.key)
        if (circuit := self._circuit_of(applicant)) is not None:
            self.circuits.release(circuit.taken(applicant.key, self._now()))
            self._changed(applicant)

    def answered(self, applicant: Applicant, *, is_taken: bool) -> None:
        """The issuer has refused the request, or has judged its names: it works."""
        self._marked.discard(applicant.key)
        if (circuit := self._circuit_of(applicant)) is not None:
            self.circuits.release(circuit.answered(applicant.key, self._now(), is_taken=is_taken))
            self._changed(applicant)

    def withdrawn(self, applicant: Applicant) -> None:
        """The attempt was allowed and has not reached the issuer."""
        if (circuit := self._circuit_of(applicant)) is not None:
            self.circuits.release(circuit.withdrawn(applicant.key, self._now()))

    def succeeded(self, applicant: Applicant) -> None:
        """The issuer has issued."""
        if (circuit := self._circuit_of(applicant)) is not None:
            self.circuits.release(circuit.succeeded(applicant.key, self._now()))
            self._changed(applicant)

    # --- issuers --------------------------------------------------------------------------------------------

    def probed(self, issuer: ObjectKey, *, is_answered: bool, message: str = "") -> None:
        """A probe of the issuer was sent."""
        if (circuit := self.circuits.at(issuer)) is not None:
            self.circuits.release(circuit.probed(self._now(), is_answered=is_answered, message=message))

    def checked(self, issuer: ObjectKey) -> None:
        """The issuer's server has answered a check, which shows as much as an answered probe."""
        circuit = self.circuits.at(issuer)
        if circuit is not None and circuit.probe_at is not None:
            self.probed(issuer, is_answered=True)
            self.records.changed(issuer)

    def call_trial(self, issuer: ObjectKey) -> None:
        """Have the first of those that wait try the issuer, if it is time."""
        if (circuit := self.circuits.at(issuer)) is not None:
            self.circuits.release(circuit.call_trial(self._now()))

    # --- events and recovery --------------------------------------------------------------------------------

    def certificate_changed(self, old: Certificate | None, new: Certificate | None) -> None:
        """To be called with every change of a Certificate."""
        if old is None:
            self._follow_others(new)
            return
        self._follow_mark(old, new)
        if new is None or new.spec.issuer_ref != old.spec.issuer_ref:
            if (circuit := self._circuit_of_certificate(old)) is not None:
                circuit.forget(old.metadata.key)
            self.circuits.drop_unused(self._now())
            return
        before, after = old.status, new.status
        if after.last_failure_time == before.last_failure_time and after.revision == before.revision:
            return
        # Of our own kinds every answer is reported where it arrives; a Certificate may be written by others.
        circuit = self._circuit_of_certificate(new)
        if circuit is None or new.spec.issuer_ref.is_ours:
            return
        if after.revision != before.revision:
            self.circuits.release(circuit.succeeded(new.metadata.key, self._now()))
        elif after.last_failure_time is not None:
            self._external_failed(circuit, new)

    def _follow_others(self, new: Certificate | None) -> None:
        """Record failures of other replicas: their Certificates enter the cache when they fail."""
        if new is None or self._mine(new.metadata.key) or not self._caches.certificates.synced.is_set():
            return
        circuit = self._circuit_of_certificate(new)
        if (
            circuit is not None
            and new.status.last_failure_time is not None
            and not new.spec.issuer_ref.is_ours
        ):
            self._external_failed(circuit, new)

    def _external_failed(self, circuit: Circuit[ObjectKey], certificate: Certificate) -> None:
        cause = cause_of_failure(certificate, self._caches)
        self.circuits.release(circuit.failed(certificate.metadata.key, cause, self._now()))

    def _follow_mark(self, old: Certificate, new: Certificate | None) -> None:
        if new is None or not conditions.is_true(new.status.conditions, reasons.ISSUING):
            self._marked.discard(old.metadata.key)
        elif causes.is_marked(new) and _issuing(new) != _issuing(old):
            self._marked.add(new.metadata.key)
            self.circuits.notify(new.metadata.key, self._now())

    def rebuild(self) -> None:
        """Make the breakers from the objects, once the caches are in sync with the API server."""
        now = self._now()
        self.records.restore()
        for history in recovery.histories(self._caches, now):
            circuit = self.circuits.of(history.reference, history.namespace)
            if circuit is not None:
                self._replay(circuit, history)
                self.circuits.release(circuit.resume(history.waited, now))
        for certificate in self._caches.certificates_issuing():
            if causes.is_marked(certificate):
                self._marked.add(certificate.metadata.key)

    def _replay(self, circuit: Circuit[ObjectKey], history: History) -> None:
        for at, key, cause in history.since_success():
            # The attempts of others are for their own part of the hour.
            if self._mine(key):
                circuit.recall(key, at)
            self.circuits.release(circuit.failed(key, cause, at))
        if circuit.is_doubted:
            # Its attempts are recorded before they are made.
            return
        circuit.recall_unrecorded(sum(map(self._mine, history.unrecorded)), self._now())

    # --- look-ups -------------------------------------------------------------------------------------------

    def _circuit_of_certificate(self, certificate: Certificate) -> Circuit[ObjectKey] | None:
        return self.circuits.of(certificate.spec.issuer_ref, certificate.metadata.namespace)

    def _circuit_of(self, applicant: Applicant) -> Circuit[ObjectKey] | None:
        return self.circuits.of(applicant.issuer, applicant.namespace)

    def _expiry(self, applicant: Applicant) -> datetime | None:
        """When the present certificate of the applicant's Certificate expires."""
        certificate = self._caches.certificates.cache.get(applicant.key)
        return certificate.status.not_after if certificate is not None else None

    def _changed(self, applicant: Applicant) -> None:
        self.records.changed(_issuer_key(applicant))


def _about(reference: IssuerReference, hold: Hold | None) -> Hold | None:
    if hold is None:
        return None
    kind = reference.kind_or_default
    return hold._replace(sentence=f'because {kind} "{reference.name}" {hold.sentence}')


def _issuer_key(applicant: Applicant) -> ObjectKey:
    is_cluster = applicant.issuer.kind_or_default == CLUSTER_ISSUERS.kind
    return ObjectKey("" if is_cluster else applicant.namespace, applicant.issuer.name)


def _issuing(certificate: Certificate) -> Condition | None:
    return conditions.find(certificate.status.conditions, reasons.ISSUING)


def _all(key: ObjectKey) -> bool:
    del key
    return True
