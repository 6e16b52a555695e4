"""Whether an issuer may be asked now: a circuit for each, fed by what becomes of Certificates.

Nothing is stored: after a start the circuits are made from what the objects say (`recall.py`). See
`circuit.py` for what a circuit does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple

from certwright.controllers import recall
from certwright.controllers.caches import Caches
from certwright.controllers.certificates.backoff import Hold
from certwright.controllers.circuit import ATTEMPTS_PER_HOUR, Circuit, Released
from certwright.controllers.recall import History, name_of, subject_of, why_failed
from certwright.issuers.contract import Failed, Outcome, Pending, Signed
from certwright.issuers.table import WITHOUT_TRACES, kind_of
from certwright.resources import causes, conditions, reasons
from certwright.resources.causes import Cause
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.meta import Condition, ObjectKey
from certwright.resources.request import CertificateRequest

Wake = Callable[[ObjectKey, datetime], None]
"""Have a Certificate, and what is under way for it, looked at again at that moment."""
FindIssuer = Callable[[IssuerReference, str], Issuer | ClusterIssuer | None]
"""The issuer of our group that a reference in a namespace means; None where it does not exist."""


class Standing(NamedTuple):
    """How an issuer does, for the metrics."""

    kind: str
    namespace: str
    name: str
    is_open: bool
    waiting: int


class IssuerGate:
    """The circuits of all issuers but those that sign inside this process, which need no protection.

    `mine` tells whose attempts are this process's own, which `attempts_per_hour` is for. Raises `ValueError`
    where that is negative; 0 lets everybody through at any time.
    """

    def __init__(
        self,
        caches: Caches,
        find_issuer: FindIssuer,
        *,
        now: Callable[[], datetime],
        attempts_per_hour: int = ATTEMPTS_PER_HOUR,
        mine: Callable[[ObjectKey], bool] | None = None,
    ) -> None:
        Circuit[ObjectKey](attempts_per_hour)
        self._attempts_per_hour = attempts_per_hour
        self._caches = caches
        self._find_issuer = find_issuer
        self._now = now
        self._circuits: dict[str, Circuit[ObjectKey]] = {}
        self._mine = mine or _everybody
        # Those that somebody wants at once (`renew`), and that have not been let through since.
        self._marked: set[ObjectKey] = set()
        self._wake: Wake = _nobody

    def on_release(self, wake: Wake) -> None:
        """Call `wake` for those that need not wait for their issuer any more."""
        self._wake = wake

    # --- the trigger's questions ----------------------------------------------------------------------------

    def may_attempt(self, certificate: Certificate, now: datetime) -> Hold | None:
        """Whether an issuance may begin (None), or until when it waits for its issuer's sake, and why."""
        found = self._circuit_of(certificate.spec.issuer_ref, certificate.metadata.namespace)
        if found is None:
            return None
        hold = found.may_begin(certificate.metadata.key, certificate.status.not_after, now)
        return _said_of(certificate.spec.issuer_ref, hold)

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
        return None

    def may_go_on(self, request: CertificateRequest) -> Hold | None:
        """Whether the issuer may be asked now about what it has taken already: always while it works."""
        reference = request.spec.issuer_ref
        found = self._circuit_of(reference, request.metadata.namespace)
        if found is None or not found.is_open:
            return None
        key, not_after = self._whose(request)
        return (
            None if key in self._marked else _said_of(reference, found.may_go_on(key, not_after, self._now()))
        )

    def is_marked(self, request: CertificateRequest) -> bool:
        """Whether somebody wants it issued at once, and the issuer has not been asked since."""
        return subject_of(request) in self._marked

    def is_doubted(self, request: CertificateRequest) -> bool:
        """Whether it must be written down that the issuer is asked, before it is: for it may be in vain."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        return found is not None and found.is_doubted

    def told(self, request: CertificateRequest, outcome: Outcome) -> None:
        """Record the outcome of a signing request; `Pending` changes nothing.

        A failure that is final for the request is an answer of a working issuer: it is about names or about
        the request. Failures of the issuer itself keep the request pending; see `failed`.
        """
        match outcome:
            case Signed():
                self.succeeded(request)
            case Failed():
                self._marked.discard(subject_of(request))
                self.answered(request)
            case Pending():
                pass

    def failed(self, request: CertificateRequest, cause: Cause, until: datetime | None = None) -> None:
        """An attempt has failed, for now or for good."""
        self._marked.discard(subject_of(request))
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.failed(subject_of(request), cause, self._now(), until))

    def taken(self, request: CertificateRequest) -> None:
        """The issuer has taken the request; what comes now depends on its names."""
        self._marked.discard(subject_of(request))
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.taken(subject_of(request), self._now()))

    def answered(self, request: CertificateRequest) -> None:
        """The issuer has refused the request for good: it works."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.answered(subject_of(request), self._now()))

    def not_asked(self, request: CertificateRequest) -> None:
        """Something else has kept it from the issuer, although it was allowed to ask."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.answered(subject_of(request), self._now()))

    def succeeded(self, request: CertificateRequest) -> None:
        """The issuer has issued."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.succeeded(subject_of(request), self._now()))

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
        before, after = old.status, new.status
        if after.last_failure_time == before.last_failure_time and after.revision == before.revision:
            return
        found = self._circuit_of(new.spec.issuer_ref, new.metadata.namespace)
        if found is None:
            return
        if after.revision != before.revision:
            self._release(found.succeeded(new.metadata.key, self._now()))
        elif after.last_failure_time is not None and not new.spec.issuer_ref.is_ours:
            why = why_failed(new, self._caches)
            self._release(found.failed(new.metadata.key, why.cause, self._now(), why.not_before))

    def _hear_of_others(self, new: Certificate | None) -> None:
        """Of other replicas' Certificates those are held that fail: one that appears has just failed."""
        if new is None or self._mine(new.metadata.key) or not self._caches.certificates.synced.is_set():
            return
        found = self._circuit_of(new.spec.issuer_ref, new.metadata.namespace)
        is_failing = new.status.last_failure_time is not None and not new.spec.issuer_ref.is_ours
        if found is not None and is_failing:
            why = why_failed(new, self._caches)
            self._release(found.failed(new.metadata.key, why.cause, self._now(), why.not_before))

    def _hear_of_mark(self, old: Certificate, new: Certificate | None) -> None:
        if new is None or not conditions.is_true(new.status.conditions, reasons.ISSUING):
            self._marked.discard(old.metadata.key)
        elif causes.is_marked(new) and _issuing(new) != _issuing(old):
            self._marked.add(new.metadata.key)
            self._wake(new.metadata.key, self._now())

    def rebuild(self) -> None:
        """Make the circuits from the objects, once the local copies hold what the API server has."""
        now = self._now()
        for history in recall.histories(self._caches, now):
            found = self._circuit_of(history.reference, history.namespace)
            if found is not None:
                self._replay(found, history)
                self._release(found.resume(history.waited, now))
        for certificate in self._caches.certificates_issuing():
            if causes.is_marked(certificate):
                self._marked.add(certificate.metadata.key)

    def _replay(self, circuit: Circuit[ObjectKey], history: History) -> None:
        for at, key, why in history.since_success():
            # The attempts of others are for their own part of the hour.
            if self._mine(key):
                circuit.recall(key, at)
            if why is not None:
                self._release(circuit.failed(key, why.cause, at, why.not_before))
        circuit.recall_untold(sum(map(self._mine, history.untold)), self._now())

    # --- for people -----------------------------------------------------------------------------------------

    def standings(self) -> list[Standing]:
        """How the issuers do that have been asked since the start."""
        found = []
        for text, circuit in sorted(self._circuits.items()):
            kind, namespace, name = text.split("/")[-3:]
            found.append(Standing(kind, namespace, name, circuit.is_open, circuit.waiting))
        return found

    # --- inside ---------------------------------------------------------------------------------------------

    def _circuit_of(self, reference: IssuerReference, namespace: str) -> Circuit[ObjectKey] | None:
        if not self._attempts_per_hour or (reference.is_ours and self._is_harmless(reference, namespace)):
            return None
        name = name_of(reference, namespace)
        found = self._circuits.get(name)
        if found is None:
            found = self._circuits[name] = Circuit(self._attempts_per_hour)
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
    return Hold(hold.until, f'because {kind} "{reference.name}" {hold.sentence}')


def _issuing(certificate: Certificate) -> Condition | None:
    return conditions.find(certificate.status.conditions, reasons.ISSUING)


def _everybody(key: ObjectKey) -> bool:
    del key
    return True
