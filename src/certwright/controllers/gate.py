"""Whether an issuer may be asked now: a circuit for each, fed by what becomes of Certificates.

Nothing is stored: after a start the circuits are made from the Certificates, whose status says when and why
the last attempt failed, and for which issuer they were waiting. See `circuit.py` for what a circuit does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from certwright.controllers.caches import Caches, issuer_of, owner_value, owning_certificate
from certwright.controllers.certificates.backoff import Hold, is_possible
from certwright.controllers.certificates.snapshot import revision_of
from certwright.controllers.circuit import ATTEMPTS_PER_HOUR, FAILING, Circuit, Released
from certwright.issuers.contract import Failed, Outcome, Pending, Signed
from certwright.issuers.table import WITHOUT_TRACES, kind_of
from certwright.resources import causes, conditions, reasons
from certwright.resources.causes import Cause, Why
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.meta import ObjectKey
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

    Raises `ValueError` where `attempts_per_hour` is negative; 0 lets everybody through at any time.
    """

    def __init__(
        self,
        caches: Caches,
        find_issuer: FindIssuer,
        *,
        now: Callable[[], datetime],
        attempts_per_hour: int = ATTEMPTS_PER_HOUR,
    ) -> None:
        Circuit[ObjectKey](attempts_per_hour)
        self._attempts_per_hour = attempts_per_hour
        self._caches = caches
        self._find_issuer = find_issuer
        self._now = now
        self._circuits: dict[str, Circuit[ObjectKey]] = {}
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

        An issuance that somebody has started by hand need not wait.
        """
        reference, now = request.spec.issuer_ref, self._now()
        found = self._circuit_of(reference, request.metadata.namespace)
        if found is None:
            return None
        key, certificate = self._whose(request)
        if certificate is None or not _is_by_hand(certificate):
            not_after = certificate.status.not_after if certificate is not None else None
            if (hold := found.may_ask(key, not_after, now)) is not None:
                return _said_of(reference, hold)
        found.asked(key, now)
        return None

    def told(self, request: CertificateRequest, outcome: Outcome) -> None:
        """What the issuer has said. That it is at work on a request is no news."""
        match outcome:
            case Signed():
                self.succeeded(request)
            case Failed(cause=cause, not_before=until):
                self.failed(request, cause, until)
            case Pending(cause=Cause() as cause):
                self.failed(request, cause)

    def failed(self, request: CertificateRequest, cause: Cause, until: datetime | None = None) -> None:
        """An attempt has failed, for now or for good."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.failed(self._whose(request)[0], cause, self._now(), until))

    def answered(self, request: CertificateRequest) -> None:
        """The issuer has taken the request; what comes now depends on its names."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.answered(self._whose(request)[0], self._now()))

    def succeeded(self, request: CertificateRequest) -> None:
        """The issuer has issued."""
        found = self._circuit_of(request.spec.issuer_ref, request.metadata.namespace)
        if found is not None:
            self._release(found.succeeded(self._whose(request)[0], self._now()))

    # --- what becomes of Certificates -----------------------------------------------------------------------

    def certificate_changed(self, old: Certificate | None, new: Certificate | None) -> None:
        """To be called with every change of a Certificate."""
        if old is None:
            return
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
        elif after.last_failure_time is not None:
            why = self._why(new)
            self._release(found.failed(new.metadata.key, why.cause, self._now(), why.not_before))

    def rebuild(self) -> None:
        """Make the circuits from the Certificates, once the local copies hold what the API server has."""
        failing: defaultdict[str, list[Certificate]] = defaultdict(list)
        held: defaultdict[str, list[Certificate]] = defaultdict(list)
        for certificate in self._caches.certificates.cache.values():
            if certificate.status.last_failure_time is not None:
                failing[self._name_of(certificate)].append(certificate)
            if _was_held(certificate):
                held[self._name_of(certificate)].append(certificate)
        for name in {*failing, *held}:
            some = (failing[name] or held[name])[0]
            found = self._circuit_of(some.spec.issuer_ref, some.metadata.namespace)
            if found is not None:
                self._replay(found, failing[name], self._last_success(name))
                waited = [(one.metadata.key, one.status.not_after) for one in held[name]]
                self._release(found.resume(waited, self._now()))

    def _replay(
        self, circuit: Circuit[ObjectKey], failing: Iterable[Certificate], since: datetime | None
    ) -> None:
        # What cannot be is left to the trigger, which puts it right.
        events = sorted(
            (at, certificate.metadata.key, self._why(certificate))
            for certificate in failing
            if (at := certificate.status.last_failure_time) is not None and (since is None or at > since)
            if is_possible(at, self._now())
        )
        for at, key, why in events:
            circuit.asked(key, at)
            circuit.failed(key, why.cause, at, why.not_before)

    def _last_success(self, issuer: str) -> datetime | None:
        """When the issuer last issued, as far as its Certificates tell."""
        moments = (_issued_at(one, self._caches) for one in self._of(issuer))
        return max((moment for moment in moments if moment is not None), default=None)

    def _of(self, issuer: str) -> Iterator[Certificate]:
        return (c for c in self._caches.certificates.cache.values() if self._name_of(c) == issuer)

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
        name = _name(reference, namespace)
        found = self._circuits.get(name)
        if found is None:
            found = self._circuits[name] = Circuit(self._attempts_per_hour)
        return found

    def _is_harmless(self, reference: IssuerReference, namespace: str) -> bool:
        issuer = self._find_issuer(reference, namespace)
        return issuer is None or kind_of(issuer.spec) in WITHOUT_TRACES

    def _name_of(self, certificate: Certificate) -> str:
        return _name(certificate.spec.issuer_ref, certificate.metadata.namespace)

    def _whose(self, request: CertificateRequest) -> tuple[ObjectKey, Certificate | None]:
        """The Certificate that a request belongs to; else a name that none can have."""
        namespace, name = request.metadata.namespace, owning_certificate(request)
        if name is None:
            return ObjectKey(namespace, f"certificaterequest/{request.metadata.name}"), None
        key = ObjectKey(namespace, name)
        return key, self._caches.certificates.cache.get(key)

    def _why(self, certificate: Certificate) -> Why:
        """Why the last attempt failed: as its request says, else what the Certificate has kept of it."""
        meta, revision = certificate.metadata, (certificate.status.revision or 0) + 1
        for request in self._caches.requests_of(owner_value(meta.namespace, meta.name)):
            why = causes.of_request(request)
            if revision_of(request) == revision and why.cause is not Cause.UNKNOWN:
                return why
        held = conditions.find(certificate.status.conditions, reasons.ISSUING)
        until = causes.not_before(held.message) if held is not None else None
        return Why(causes.of_certificate(certificate), not_before=until)

    def _release(self, released: Iterable[Released[ObjectKey]]) -> None:
        for one in released:
            self._wake(one.key, one.at)


def _nobody(key: ObjectKey, at: datetime) -> None:
    del key, at


def _name(reference: IssuerReference, namespace: str) -> str:
    own = issuer_of(reference, namespace)
    return own if reference.is_ours else f"{reference.group}/{own}"


def _said_of(reference: IssuerReference, hold: Hold | None) -> Hold | None:
    if hold is None:
        return None
    kind = reference.kind_or_default
    return Hold(hold.until, f'because {kind} "{reference.name}" {hold.sentence}')


def _was_held(certificate: Certificate) -> bool:
    found = conditions.find(certificate.status.conditions, reasons.ISSUING)
    return found is not None and FAILING in found.message


def _is_by_hand(certificate: Certificate) -> bool:
    found = conditions.find(certificate.status.conditions, reasons.ISSUING)
    return found is not None and found.status == "True" and found.reason == reasons.MANUALLY_TRIGGERED


def _issued_at(certificate: Certificate, caches: Caches) -> datetime | None:
    meta, status = certificate.metadata, certificate.status
    if not status.revision:
        return None
    for request in caches.requests_of(owner_value(meta.namespace, meta.name)):
        ready = conditions.find(request.status.conditions, reasons.READY)
        if revision_of(request) == status.revision and ready is not None and ready.status == "True":
            return ready.last_transition_time
    return status.not_before
