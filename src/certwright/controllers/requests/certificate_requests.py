"""Run approval and signing over one CertificateRequest, and write its status once.

Both change one draft, so that approval and signature take one write. A request is approved unless it is
denied, approved or finished; the API server checks the right to approve. Installations with another approver
disable this approver (`--controllers=*,-certificaterequests-approver`).

Source: cert-manager `pkg/controller/certificaterequests/approver`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from certwright.controllers.cache.indexes import awaits_signature
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.issuers import IssuerTools, SecretReader
from certwright.controllers.requests.members import Members, NoMember
from certwright.controllers.requests.signing import ISSUED_EVENT, Answer, NewEvent, Signing
from certwright.issuers.contract import SigningRequest
from certwright.kube.api import conditions
from certwright.kube.api.errors import Forbidden, NotFound
from certwright.kube.api.meta import Condition, ObjectKey, controller_of
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Result
from certwright.resources import names, reasons
from certwright.resources.issuer import write_member
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES

REASON = "cert-manager.io"
MESSAGE = "Certificate request has been approved by cert-manager.io"


def is_open(request: CertificateRequest) -> bool:
    """Whether the request is neither approved, nor denied, nor finished."""
    existing = request.status.conditions
    ready = conditions.find(existing, reasons.READY)
    decided = conditions.is_true(existing, reasons.APPROVED) or conditions.is_true(existing, reasons.DENIED)
    finished = ready is not None and ready.reason in (reasons.FAILED, reasons.ISSUED)
    return not decided and not finished


def approve(request: CertificateRequest, now: datetime) -> CertificateRequest:
    """The request with `Approved=True`, if it is open; otherwise unchanged."""
    if not is_open(request):
        return request
    new = Condition(type=reasons.APPROVED, status="True", reason=REASON, message=MESSAGE)
    status = msgspec.structs.replace(
        request.status, conditions=conditions.with_condition(request.status.conditions, new, now)
    )
    return msgspec.structs.replace(request, status=status)


_log = logging.getLogger(__name__)

WAITING = "Not signing CertificateRequest until it is Approved"

# The Event for an older request without approval was sent before this process started.
_NEW = timedelta(minutes=1)
# The wait after a refused approval, for an administrator to grant the right.
_APPROVE_AGAIN = timedelta(minutes=5)


class CertificateRequestReconciler:
    """Reconciles CertificateRequests: approves them (if `approves`), then has them signed. `secrets_of`
    returns the namespace of an issuer's Secrets."""

    def __init__(
        self,
        signing: Signing,
        tools: IssuerTools,
        members: Members,
        requests: Informer[CertificateRequest],
        *,
        approves: bool,
        secrets_of: Callable[[IssuerReference, str], str],
    ) -> None:
        self._members = members
        self._tools = tools
        self.dependents: Dependents[ObjectKey] = Dependents()
        self._signing = signing
        self._approves = approves
        self._requests = requests
        self._secrets = tools.secrets
        self._secrets_of = secrets_of
        self._toolbox = tools.toolbox
        self._status = tools.toolbox.status_of(requests)
        self._reported: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass over one request. Raises what the write raises."""
        request = self._requests.cache.get(key)
        if request is None or request.metadata.deletion_timestamp is not None:
            self.dependents.keep_only(key, ())
            self._reported.pop(key, None)
            self._signing.forget(key)
            return Result()
        draft = approve(request, self._toolbox.now()) if self._approves else request
        try:
            return await self._write(key, request, draft)
        except Forbidden as error:
            if draft is request:
                raise
            # Usually an issuer of another group, for whose signers we have no right to approve.
            _log.info("%s: left to another approver: %s", key, error)
        result = await self._write(key, request, request)
        again = self._toolbox.now() + _APPROVE_AGAIN
        return Result(wake_at=min(result.wake_at, again) if result.wake_at else again)

    async def _write(self, key: ObjectKey, request: CertificateRequest, draft: CertificateRequest) -> Result:
        """Sign the request, if `draft` allows; write the result; send its Events."""
        is_stored = draft is request
        if draft.spec.issuer_ref.is_set and awaits_signature(draft):
            request, answer = await self._answer_for_set(key, request, draft, is_stored=is_stored)
        else:
            answer = await self._answer(key, draft, is_stored=is_stored)
        try:
            if answer.annotations:
                await self._annotate(request, answer.annotations)
                return Result(wake_at=answer.again_at)
            written = await self._status.commit(CERTIFICATE_REQUESTS, request, answer.request)
        except NotFound:
            return Result()
        # A request that a Certificate owns sends no Events while all goes well, because the Certificate sends
        # them.
        owner = controller_of(written.metadata)
        owned = owner is not None and owner.kind == CERTIFICATES.kind
        was_open = is_open(request)
        if was_open and is_open(written):
            self._report_wait_once(written)
        elif was_open and self._approves and not owned:
            self._event(written, NewEvent("Normal", REASON, MESSAGE))
        for event in answer.events:
            if not (owned and event.reason == ISSUED_EVENT):
                self._event(written, event)
        return Result(wake_at=answer.again_at)

    async def _answer_for_set(
        self, key: ObjectKey, request: CertificateRequest, draft: CertificateRequest, *, is_stored: bool
    ) -> tuple[CertificateRequest, Answer]:
        """The request, now with its member, and the member's answer."""
        member = await self._members.choose(draft)
        if isinstance(member, NoMember) and not member.is_announced:
            return request, Answer(draft)
        if isinstance(member, NoMember):
            answer = self._signing.pending(draft, member.reason, member.message)
            return request, msgspec.structs.replace(answer, again_at=member.again_at)
        request = await self._record_member(request, member)
        draft = msgspec.structs.replace(draft, metadata=request.metadata)
        answer = await self._answer(key, self._members.sent_to(draft, member), is_stored=is_stored)
        if not answer.is_taken and names.VENAFI_PICKUP_ID in request.metadata.annotations:
            # The ID is of no order, and would keep the request at this member.
            await self._annotate(request, {names.VENAFI_PICKUP_ID: None})
            return request, Answer(draft, again_at=answer.again_at)
        complete = msgspec.structs.replace(answer.request, metadata=draft.metadata, spec=draft.spec)
        moments = (answer.again_at, self._members.leaves_server_at(request))
        again_at = min((moment for moment in moments if moment is not None), default=None)
        return request, msgspec.structs.replace(answer, request=complete, again_at=again_at)

    async def _record_member(
        self, request: CertificateRequest, member: IssuerReference
    ) -> CertificateRequest:
        """Record the member that the request is sent to, BEFORE it is sent, so that a crash does not move it.
        The former member's identifier of the request is removed."""
        meta = request.metadata
        annotation: dict[str, str | None] = {**write_member(member)}
        if annotation.items() <= meta.annotations.items():
            return request
        if names.VENAFI_PICKUP_ID in meta.annotations:
            annotation = {**annotation, names.VENAFI_PICKUP_ID: None}
        patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": annotation}}
        client = self._toolbox.client
        written = await client.patch(CERTIFICATE_REQUESTS, meta.name, meta.namespace, patch)
        self._requests.put(written)
        return written

    async def _annotate(self, request: CertificateRequest, annotations: Mapping[str, str | None]) -> None:
        """Save an issuer's state; None removes an annotation. Without a resourceVersion, because a conflict
        must not lose it."""
        meta = request.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": dict(annotations)}}
        client = self._toolbox.client
        self._requests.put(await client.patch(CERTIFICATE_REQUESTS, meta.name, meta.namespace, patch))

    async def _answer(self, key: ObjectKey, request: CertificateRequest, *, is_stored: bool) -> Answer:
        reader = SecretReader(self._secrets, self.dependents, key)
        namespace = request.metadata.namespace
        secrets_in = self._secrets_of(request.spec.issuer_ref, namespace)
        tools = self._tools.within(secrets_in, reader.within(secrets_in))
        signing = SigningRequest(request, get_secret=reader.within(namespace))
        answer = await self._signing.answer(request, tools, signing, is_stored=is_stored)
        waits = conditions.find(answer.request.status.conditions, reasons.READY)
        pending = waits is not None and waits.reason == reasons.PENDING
        self.dependents.keep_only(key, reader.read if pending else ())
        return answer

    def _report_wait_once(self, request: CertificateRequest) -> None:
        meta = request.metadata
        created = meta.creation_timestamp
        if self._reported.get(meta.key) == meta.uid or created is None:
            return
        if self._toolbox.now() - created > _NEW:
            return
        self._reported[meta.key] = meta.uid
        self._event(request, NewEvent("Normal", "WaitingForApproval", WAITING))

    def _event(self, request: CertificateRequest, event: NewEvent) -> None:
        self._toolbox.recorder.event(CERTIFICATE_REQUESTS, request, event.type, event.reason, event.message)
