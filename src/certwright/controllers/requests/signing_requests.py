"""Sign Kubernetes' CertificateSigningRequests whose signer is an Issuer or ClusterIssuer of ours.

Approval is Kubernetes' (`kubectl certificate approve`). The requester of a namespaced Issuer needs the verb
`reference` on it, because the request itself has no namespace. What a Kubernetes request has no field for
comes from annotations. There is no condition for waiting: an Event reports what the request waits for.

Source: cert-manager `pkg/controller/certificatesigningrequests`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import timedelta
from typing import Final, Literal

import msgspec

from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.circuit_breaker import Hold
from certwright.controllers.issuer_gate import (
    CHECK_BREAKER,
    ISSUER_FAILING,
    IssuerGate,
    key_of_signing_request,
    signing_applicant,
)
from certwright.controllers.issuers import IssuerTools, SecretReader
from certwright.controllers.requests.issuer_lister import IssuerState
from certwright.controllers.requests.signing import ISSUED, ISSUED_EVENT, NewEvent
from certwright.issuers.contract import Failed, Pending, Signed, SigningRequest
from certwright.issuers.table import ISSUERS, QUERIED_DIRECTLY, kind_of, verified
from certwright.kube.api.core import SUBJECT_ACCESS_REVIEWS
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.controller import Result
from certwright.kube.util.durations import format_duration, parse_duration
from certwright.resources import names, reasons
from certwright.resources.certificate import DEFAULT_DURATION
from certwright.resources.references import IssuerReference
from certwright.resources.request import (
    ISSUER_ANNOTATIONS,
    REQUEST_DURATION,
    REQUEST_IS_CA,
    CertificateRequest,
    CertificateRequestSpec,
    CertificateSigningRequest,
    Signer,
    SigningCondition,
    is_open,
    parse_signer_name,
)
from certwright.resources.table import CERTIFICATE_SIGNING_REQUESTS

_WAITING_APPROVAL: Final = "WaitingApproval"
WAITING: Final = "Waiting for the Approved condition before issuing"
_SHORTEST: Final = timedelta(seconds=600)
# The Event for an older request without approval was sent before this process started.
_NEW: Final = timedelta(minutes=1)
# cert-manager calls these by other names than in a CertificateRequest.
_EVENT_REASONS: Final[Mapping[str, Mapping[str, str]]] = {
    "selfSigned": {"MissingSecret": "SecretNotFound"},
    "vault": {
        "SecretMissing": "SecretNotFound",
        "VaultInitError": "ErrorVaultInit",
        "SigningError": "ErrorSigning",
    },
    "venafi": {
        "VenafiInitError": "ErrorVenafiInit",
        "CustomFieldsError": "ErrorCustomFields",
        "RequestError": "ErrorRequest",
        "RetrieveError": "ErrorRetrieve",
        "ParseError": "ErrorParse",
    },
}


_PROGRESS: Final = frozenset({"OrderPending", "IssuancePending"})
"""Reasons to wait that are no problem."""


class Refused(Exception):
    """The request can never be signed; the Event's reason and message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.event = NewEvent("Warning", reason, message)


class Waits(Exception):
    """The request cannot be signed yet; the Event that reports why."""

    def __init__(self, event: NewEvent, again: timedelta | None = None) -> None:
        super().__init__(event.message)
        self.event = event
        self.again = again


MayReference = Callable[[CertificateSigningRequest, Signer], Awaitable[bool]]
"""Whether the requester may use that namespaced Issuer."""


def reference_review(client: Client) -> MayReference:
    """Asks the API server with SubjectAccessReviews: for this Issuer, then for all of its namespace."""

    async def is_allowed(request: CertificateSigningRequest, namespace: str, name: str) -> bool:
        spec = request.spec
        action = {
            "group": names.GROUP,
            "version": "*",
            "resource": "signers",
            "verb": "reference",
            "namespace": namespace,
            "name": name,
        }
        user = {"user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": dict(spec.extra)}
        review = {"metadata": {}, "spec": {"resourceAttributes": action, **user}}
        answer = await client.create(SUBJECT_ACCESS_REVIEWS, review)
        return (answer.get("status") or {}).get("allowed") is True

    async def may_reference(request: CertificateSigningRequest, signer: Signer) -> bool:
        # RBAC has no patterns in resourceNames: a role for all signers of a namespace names one called "*".
        for name in (signer.name, "*"):
            if await is_allowed(request, signer.namespace, name):
                return True
        return False

    return may_reference


class SigningRequestReconciler:
    """Reconciles CertificateSigningRequests: signs approved ones. `find` looks up an issuer, None if it does
    not exist. `kinds`: the kinds of issuer that may sign. `secrets_in` returns the namespace of an issuer's
    Secrets."""

    def __init__(
        self,
        find: Callable[[Signer], IssuerState | None],
        tools: IssuerTools,
        gate: IssuerGate,
        requests: Informer[CertificateSigningRequest],
        *,
        kinds: Collection[str],
        may_reference: MayReference,
        secrets_in: Callable[[Signer], str],
    ) -> None:
        self.dependents: Dependents[ObjectKey] = Dependents()
        self._find = find
        self._gate = gate
        self._kinds = kinds
        self._may_reference = may_reference
        self._requests = requests
        self._secrets = tools.secrets
        self._secrets_in = secrets_in
        self._tools = tools
        self._toolbox = tools.toolbox
        self._status = tools.toolbox.status_of(requests)
        self._reported: dict[ObjectKey, tuple[str, NewEvent]] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass over one request. Raises what the writes and the access review raise."""
        request = self._requests.cache.get(key)
        signer = parse_signer_name(request.spec.signer_name) if request else None
        if request is None or signer is None or not is_open(request):
            self.dependents.keep_only(key, ())
            self._reported.pop(key, None)
            self._gate.forget(key_of_signing_request(key.name))
            return Result()
        try:
            return await self._sign(key, request, signer)
        except Waits as waits:
            self._report_once(request, waits.event)
            return Result(wake_at=self._toolbox.now() + waits.again if waits.again else None)
        except Refused as refused:
            await self._refuse(request, refused.event)
        except NotFound:
            # Deleted since the read.
            pass
        return Result()

    async def _sign(self, key: ObjectKey, request: CertificateSigningRequest, signer: Signer) -> Result:
        if not request.status.has(reasons.APPROVED):
            raise Waits(NewEvent("Normal", _WAITING_APPROVAL, WAITING))
        issuer = self._find(signer)
        if issuer is None:
            raise Waits(NewEvent("Warning", "IssuerNotFound", f"Referenced {signer} not found"))
        kind = kind_of(issuer.view.spec)
        if not kind:
            text = f"Referenced {signer} configures no issuer type"
            raise Waits(NewEvent("Warning", "IssuerTypeMissing", text))
        if kind.lower() not in self._kinds:
            return Result()
        if signer.namespace and not await self._may_reference(request, signer):
            where = f"{signer.namespace}/{signer.name}"
            raise Refused("DeniedReference", f"Requester may not reference Namespaced Issuer {where}")
        secrets_in = self._secrets_in(signer)
        asked = _as_request(request, signer, secrets_in)
        if not issuer.ready:
            if issuer.ready is None:
                return Result()
            text = f"Referenced {signer} does not have a Ready status condition"
            raise Waits(NewEvent("Warning", "IssuerNotReady", text))
        reader = SecretReader(self._secrets, self.dependents, key)
        get_secret = reader.within(secrets_in)
        tools = self._tools.within(secrets_in, get_secret)
        gate = self._gate if kind in QUERIED_DIRECTLY else None
        applicant = signing_applicant(asked.spec.issuer_ref, secrets_in, key.name)
        if gate is not None:
            if (hold := gate.admit(applicant)) is not None:
                return self._wait_for_breaker(request, hold)
            await gate.record(applicant)
        signing = SigningRequest(asked, get_secret=get_secret)
        outcome = await verified(await ISSUERS[kind].sign(issuer.view, signing, tools), signing, tools)
        if gate is not None:
            gate.report(applicant, outcome)
        self.dependents.keep_only(key, reader.read if isinstance(outcome, Pending) else ())
        reasons_here = _EVENT_REASONS.get(kind, {})
        match outcome:
            case Pending(annotations=annotations) if annotations:
                await self._annotate(request, annotations)
                return Result(wake_at=self._toolbox.now())
            case Pending(reason, message, _, retry_after):
                kind_of_event: Literal["Normal", "Warning"] = "Normal" if reason in _PROGRESS else "Warning"
                event = NewEvent(
                    kind_of_event, reasons_here.get(reason, reason), _with_own_annotations(message)
                )
                raise Waits(event, retry_after if outcome.cause is None else CHECK_BREAKER)
            case Failed(reason, message):
                raise Refused(reasons_here.get(reason, reason), _with_own_annotations(message))
            case Signed():
                await self._store(request, outcome)
        return Result()

    def _wait_for_breaker(self, request: CertificateSigningRequest, hold: Hold) -> Result:
        """Wait until the issuer's circuit breaker allows another attempt. An Event with the issuer's own
        answer says more."""
        reported = self._reported.get(request.metadata.key)
        if reported is None or reported[1].reason == _WAITING_APPROVAL:
            text = f"not asking the issuer, {hold.sentence}"
            self._report_once(request, NewEvent("Warning", ISSUER_FAILING, text))
        return Result(wake_at=hold.until)

    async def _annotate(self, request: CertificateSigningRequest, annotations: Mapping[str, str]) -> None:
        """Save an issuer's state. Without a resourceVersion, because a conflict must not lose it."""
        meta = request.metadata
        ours = {
            here: annotations[there] for here, there in ISSUER_ANNOTATIONS.items() if there in annotations
        }
        patch = {"metadata": {"uid": meta.uid, "annotations": ours}}
        client = self._toolbox.client
        self._requests.put(await client.patch(CERTIFICATE_SIGNING_REQUESTS, meta.name, "", patch))

    async def _store(self, request: CertificateSigningRequest, signed: Signed) -> None:
        status = msgspec.structs.replace(request.status, certificate=signed.chain_pem)
        written = await self._write(request, status=status)
        for remark in signed.warnings:
            self._event(written, NewEvent("Warning", remark.reason, remark.message))
        self._event(written, NewEvent("Normal", ISSUED_EVENT, ISSUED))

    async def _refuse(self, request: CertificateSigningRequest, event: NewEvent) -> None:
        failed = SigningCondition(reasons.FAILED, "True", event.reason, event.message)
        conditions = (*request.status.conditions, failed)
        try:
            written = await self._write(
                request, status=msgspec.structs.replace(request.status, conditions=conditions)
            )
        except NotFound:
            return
        self._event(written, event)

    async def _write(self, request: CertificateSigningRequest, **parts: object) -> CertificateSigningRequest:
        changed = msgspec.structs.replace(request, **parts)
        return await self._status.commit(CERTIFICATE_SIGNING_REQUESTS, request, changed)

    def _report_once(self, request: CertificateSigningRequest, event: NewEvent) -> None:
        meta = request.metadata
        mark = (meta.uid, event)
        if self._reported.get(meta.key) == mark:
            return
        self._reported[meta.key] = mark
        created = meta.creation_timestamp
        if event.reason != _WAITING_APPROVAL or (
            created is not None and self._toolbox.now() - created <= _NEW
        ):
            self._event(request, event)

    def _event(self, request: CertificateSigningRequest, event: NewEvent) -> None:
        recorder = self._toolbox.recorder
        recorder.event(CERTIFICATE_SIGNING_REQUESTS, request, event.type, event.reason, event.message)


def _with_own_annotations(message: str) -> str:
    """An issuer's message, with the annotations named as they are called here."""
    for here, there in ISSUER_ANNOTATIONS.items():
        message = message.replace(there, here)
    return message


def _as_request(request: CertificateSigningRequest, signer: Signer, namespace: str) -> CertificateRequest:
    """The request in the form that issuers know, in the namespace of its issuer's Secrets. Raises
    `Refused`."""
    notes = request.metadata.annotations
    meta = msgspec.structs.replace(
        request.metadata,
        namespace=namespace,
        annotations={
            **{key: value for key, value in notes.items() if key not in ISSUER_ANNOTATIONS.values()},
            **{there: notes[here] for here, there in ISSUER_ANNOTATIONS.items() if notes.get(here)},
        },
    )
    spec = CertificateRequestSpec(
        # As Go writes it, because the name of an Order depends on it.
        duration=format_duration(_duration(request)),
        issuer_ref=IssuerReference(name=signer.name, kind=signer.kind),
        request=request.spec.request,
        is_ca=notes.get(REQUEST_IS_CA) == "true",
        usages=request.spec.usages,
    )
    return CertificateRequest(metadata=meta, spec=spec)


def _duration(request: CertificateSigningRequest) -> timedelta:
    """The annotation's value, else `expirationSeconds`, else 90 days."""
    text, seconds = request.metadata.annotations.get(REQUEST_DURATION), request.spec.expiration_seconds
    if text is None:
        return DEFAULT_DURATION if seconds is None else timedelta(seconds=seconds)
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise Refused("ErrorParseDuration", f"Failed to parse requested duration: {error}") from None
    if duration < _SHORTEST:
        least = f"{_SHORTEST // timedelta(seconds=1)}s"
        text = f"CertificateSigningRequest minimum allowed duration is {least}, requested {text}"
        raise Refused("InvalidDuration", text)
    return duration
