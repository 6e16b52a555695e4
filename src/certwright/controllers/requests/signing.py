"""Have an approved request signed by its issuer, and record the answer.

Wakes on:  CertificateRequest: Approved or Denied; its Issuer or ClusterIssuer; the Secrets it has read
Reads:     the request, its issuer, Secrets (through the issuer's implementation)
Writes:    CertificateRequest.status: certificate, ca, Ready, InvalidRequest, FailureCause, failureTime
Next:      issuing

Source: cert-manager `pkg/controller/certificaterequests/sync.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from certwright.controllers.issuer_gate import (
    CHECK_BREAKER,
    ISSUER_FAILING,
    IssuerGate,
    applicant_of,
    key_of_request,
)
from certwright.controllers.requests.issuer_lister import IssuerState
from certwright.issuers.contract import (
    Failed,
    Issuer,
    Outcome,
    Pending,
    Signed,
    SigningRequest,
    Tools,
)
from certwright.issuers.table import ISSUERS, QUERIED_DIRECTLY, WITHOUT_TRACES, kind_of, verified
from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition, ObjectKey
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.resources import causes, reasons
from certwright.resources.causes import Why
from certwright.resources.request import CertificateRequest

DENIED = "The CertificateRequest was denied by an approval controller"
ISSUED_EVENT = "CertificateIssued"
ISSUED = "Certificate fetched from issuer successfully"


class NewEvent(NamedTuple):
    """An Event about the request."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Answer(msgspec.Struct, frozen=True):
    """The resulting request, its Events, and the time of the next pass. `annotations` are written to the
    request before its status. `is_taken` False: the issuer has failed and has not taken the request."""

    request: CertificateRequest
    events: tuple[NewEvent, ...] = ()
    again_at: datetime | None = None
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_taken: bool = True


FindIssuer = Callable[[CertificateRequest], IssuerState | None]
"""The issuer that a request of our group refers to, None where it does not exist."""


class Signing:
    """The signing of approved CertificateRequests, one at a time; writes nothing itself.

    `kinds`: the enabled kinds of issuer; requests to others are ignored. `namespaced`: the controllers work
    in one namespace, without ClusterIssuers.
    """

    def __init__(
        self,
        find_issuer: FindIssuer,
        *,
        kinds: Collection[str],
        now: Callable[[], datetime],
        namespaced: bool = False,
        issuers: Mapping[str, Issuer] = ISSUERS,
        gate: IssuerGate | None = None,
    ) -> None:
        self._gate = gate
        self._namespaced = namespaced
        self._find_issuer = find_issuer
        self._issuers = issuers
        self._kinds = kinds
        self._now = now

    def forget(self, request: ObjectKey) -> None:
        """The request of that name does not exist any more. Idempotent."""
        if self._gate is not None:
            self._gate.forget(key_of_request(request))

    async def answer(
        self, request: CertificateRequest, tools: Tools, signing: SigningRequest, *, is_stored: bool = True
    ) -> Answer:
        """The answer to the request. It is unchanged where nothing can be done (yet).

        `is_stored` is False for a request whose approval will be written together with the answer.
        """
        existing = request.status.conditions
        ready = conditions.find(existing, reasons.READY)
        reference = request.spec.issuer_ref
        if not (reference.is_ours or reference.is_set) or (ready and ready.reason in _FINAL):
            return Answer(request)
        if conditions.is_true(existing, reasons.DENIED):
            return Answer(self._refused(request, reasons.DENIED, DENIED))
        if conditions.is_true(existing, reasons.INVALID_REQUEST):
            return Answer(request)
        if (problem := _problem_of(request)) is not None:
            message = f"The signing request in spec.request cannot be used: {problem}"
            refused = self._refused(request, reasons.FAILED, message)
            invalid = Condition(
                type=reasons.INVALID_REQUEST, status="True", reason="InvalidRequest", message=message
            )
            event = NewEvent("Warning", "RequestParsingError", message)
            return Answer(_with(refused, invalid, self._now()), (event,))
        if not conditions.is_true(existing, reasons.APPROVED):
            return Answer(request)
        return await self._send_to_issuer(request, tools, signing, is_stored=is_stored)

    async def _send_to_issuer(
        self, request: CertificateRequest, tools: Tools, signing: SigningRequest, *, is_stored: bool
    ) -> Answer:
        reference = request.spec.issuer_ref
        issuer = self._find_issuer(request)
        if issuer is None:
            kind = reference.kind_or_default
            text = f'{kind.lower()}.{reference.group_or_default} "{reference.name}" not found'
            if self._namespaced and kind == "ClusterIssuer":
                text = (
                    "the controllers work in one namespace (--namespace), where there are no ClusterIssuers"
                )
            return self.pending(request, "IssuerNotFound", f'Referenced "{kind}" not found: {text}')
        kind = kind_of(issuer.view.spec)
        if kind and kind.lower() not in self._kinds:
            return Answer(request)
        if issuer.ready is None:
            # Its Ready condition follows immediately and wakes this request: not worth a write.
            return Answer(request)
        if not issuer.ready:
            text = "Referenced issuer does not have a Ready status condition"
            return self.pending(
                request, "IssuerNotReady", f"{text}: {issuer.message}" if issuer.message else text
            )
        if not kind:
            return self.pending(request, "IssuerTypeMissing", "Referenced issuer configures no issuer type")
        if not is_stored and kind not in WITHOUT_TRACES:
            # No order may be placed at a CA for a request that we may turn out not to be allowed to approve.
            # The write of the approval wakes this request again.
            return Answer(request)
        if self._gate is not None and kind in QUERIED_DIRECTLY:
            return await self._attempt(request, self._gate, issuer, tools, signing)
        outcome = await self._sign(issuer, signing, tools)
        if self._gate is not None:
            self._gate.finished(applicant_of(request), outcome)
        return self._recorded(request, outcome, issuer.view.generation)

    async def _attempt(
        self,
        request: CertificateRequest,
        gate: IssuerGate,
        issuer: IssuerState,
        tools: Tools,
        signing: SigningRequest,
    ) -> Answer:
        """Send the request to the issuer's server, if its circuit breaker allows."""
        applicant = applicant_of(request)
        if (hold := gate.admit(applicant)) is not None:
            ready = conditions.find(request.status.conditions, reasons.READY)
            if ready is not None and ready.reason == reasons.PENDING:
                # The condition has the issuer's own answer, which says more.
                return Answer(request, again_at=hold.until)
            answer = self.pending(request, ISSUER_FAILING, f"not asking the issuer, {hold.sentence}")
            return Answer(answer.request, answer.events, hold.until)
        await gate.record(applicant)
        outcome = await self._sign(issuer, signing, tools)
        gate.report(applicant, outcome)
        answer = self._recorded(request, outcome, issuer.view.generation)
        if isinstance(outcome, Pending) and outcome.cause is not None:
            again_at = self._now() + CHECK_BREAKER
            return Answer(answer.request, answer.events, again_at, is_taken=outcome.is_taken)
        return answer

    async def _sign(self, issuer: IssuerState, signing: SigningRequest, tools: Tools) -> Outcome:
        outcome = await self._issuers[kind_of(issuer.view.spec)].sign(issuer.view, signing, tools)
        return await verified(outcome, signing, tools)

    def _recorded(self, request: CertificateRequest, outcome: Outcome, generation: int) -> Answer:
        match outcome:
            case Signed(chain_pem, ca_pem, warnings):
                ready = Condition(type=reasons.READY, status="True", reason=reasons.ISSUED, message=ISSUED)
                signed = _with(request, ready, self._now(), certificate=chain_pem, ca=ca_pem)
                remarks = (NewEvent("Warning", remark.reason, remark.message) for remark in warnings)
                return Answer(signed, (*remarks, NewEvent("Normal", ISSUED_EVENT, ISSUED)))
            case Failed(reason, message):
                why = Why(outcome.cause, outcome.advice, generation=generation)
                failed = self._refused(request, reasons.FAILED, message)
                if (cause := causes.condition_of(why)) is not None:
                    failed = _with(failed, cause, self._now())
                return Answer(failed, (NewEvent("Warning", reason, message),))
            case Pending(annotations=annotations) if annotations:
                return Answer(request, again_at=self._now(), annotations=annotations)
            case Pending(reason, message, _, retry_after):
                is_reported = (
                    outcome.is_announced
                    or conditions.find(request.status.conditions, reasons.READY) is not None
                )
                answer = self.pending(request, reason, message) if is_reported else Answer(request)
                again_at = self._now() + retry_after if retry_after else None
                return Answer(answer.request, answer.events, again_at)

    def pending(self, request: CertificateRequest, reason: str, message: str) -> Answer:
        """The answer that the request waits, and why. `reason` is the Event's."""
        before = conditions.find(request.status.conditions, reasons.READY)
        ready = Condition(type=reasons.READY, status="False", reason=reasons.PENDING, message=message)
        # Only the first wait sends an Event, because the reason for waiting may change often.
        is_new = before is None or before.reason != reasons.PENDING
        events = (NewEvent("Normal", reason, message),) if is_new else ()
        return Answer(_with(request, ready, self._now()), events)

    def _refused(self, request: CertificateRequest, reason: str, message: str) -> CertificateRequest:
        now = self._now()
        ready = Condition(type=reasons.READY, status="False", reason=reason, message=message)
        failed_at = request.status.failure_time or now.replace(microsecond=0)
        return _with(request, ready, now, failure_time=failed_at)


_FINAL = (reasons.ISSUED, reasons.FAILED, reasons.DENIED)


def _problem_of(request: CertificateRequest) -> str | None:
    """Why the CSR must not be signed by any issuer; None where it is sound."""
    try:
        facts = read_csr(request.spec.request)
    except PkiError as error:
        return str(error)
    # RFC 2986 §3: the signature proves that the requester holds the private key.
    return None if facts.signature_valid else "its signature does not belong to its public key"


def _with(
    request: CertificateRequest, condition: Condition, now: datetime, **status: Any
) -> CertificateRequest:
    updated = conditions.with_condition(request.status.conditions, condition, now)
    changed = msgspec.structs.replace(request.status, conditions=updated, **status)
    return msgspec.structs.replace(request, status=changed)
