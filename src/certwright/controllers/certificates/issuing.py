"""Store key and certificate together in the target Secret; or record that the attempt has failed.

Wakes on:  the CertificateRequest of the next revision: Ready, Failed, Denied or InvalidRequest
Reads:     snapshot
Writes:    target Secret; Certificate.status.revision, conditions[Issuing], lastFailureTime,
           failedIssuanceAttempts
Next:      readiness; after a failure trigger, when the backoff is over

The Secret is written BEFORE the status: a crash between the two leaves a whole Secret, which the next start
recognises as this revision's. Key and certificate go in one write, so that no reader sees half a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from certwright.controllers import backoff
from certwright.controllers.backoff import BackoffLimits
from certwright.controllers.certificates import desired, keystores, ownership, retry_time, rules, target
from certwright.controllers.certificates.draft import Blocked, Draft, Rejected
from certwright.controllers.certificates.effects import CHANGED, Did, Effects
from certwright.controllers.certificates.rules import secret_is_not_ours
from certwright.controllers.certificates.snapshot import Snapshot, Verdict
from certwright.controllers.certificates.target import Pair
from certwright.issuers.csr_plan import csr_plan
from certwright.kube.api import conditions
from certwright.kube.api.errors import Forbidden, Invalid
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import changed_by_admission
from certwright.pki import renewal, signing
from certwright.pki.certificates import CertificateFacts, rewritten
from certwright.pki.errors import PkiError
from certwright.pki.verify import Verification
from certwright.resources import causes, names, reasons
from certwright.resources.request import CertificateRequest
from certwright.resources.retry import RetryRecord
from certwright.resources.table import CERTIFICATES

ISSUED: Final = "The certificate has been successfully issued"
TEMPORARY_ISSUED: Final = "Issued temporary certificate"


class Issuing:
    """The step that ends an issuance, with success or failure.

    `owns_secrets`: Certificates own their target Secrets (`--enable-certificate-owner-ref`). `has_failed_at`:
    whether another Certificate failed in that second, so that the two are attempted at different times.
    """

    def __init__(
        self,
        limits: BackoffLimits,
        *,
        owns_secrets: bool = False,
        has_failed_at: Callable[[datetime], bool] = lambda _: False,
    ) -> None:
        self._has_failed_at = has_failed_at
        self._limits = limits
        self._owns_secrets = owns_secrets

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Complete the issuance once the Secret contains the certificate, fail it, or report its wait. The
        adoption of a Secret made by others is reported before the Secret is written."""
        ownership.decide_adoption(snapshot, draft)
        request = snapshot.next_request if snapshot.is_issuing else None
        if request is None:
            return
        failure = failure_of(request, snapshot)
        if failure is not None:
            self._fail(failure, request, snapshot, draft)
        elif is_issued(request):
            if target.holds(snapshot, request):
                _report_verification(request, snapshot, draft)
                draft.change(
                    revision=snapshot.next_revision,
                    last_failure_time=None,
                    failed_issuance_attempts=None,
                    next_private_key_secret_name=None,
                    # It belongs to the previous certificate, whose window would have this one renewed
                    # immediately.
                    acme=None,
                )
                draft.remove_condition(reasons.ISSUING)
                # Of the files with the certificate before.
                draft.remove_condition(reasons.EXPORTED)
                draft.set_retry(None)
                draft.add_event("Normal", "Issuing", ISSUED)
            elif (moment := _withheld_until(request, snapshot)) is not None:
                _report_withheld(moment, snapshot, draft)
        else:
            # Show in the Certificate why its request waits. Normally it does not wait, so this costs no
            # write.
            ready = conditions.find(request.status.conditions, reasons.READY)
            issuing = conditions.find(snapshot.certificate.status.conditions, reasons.ISSUING)
            if ready is None or issuing is None or ready.reason != reasons.PENDING or not ready.message:
                return
            message = causes.waiting_for(request, ready.message)
            reason = issuing.reason
            if reason == reasons.MANUALLY_TRIGGERED:
                # The request has been made: only another `renew` ends its wait.
                reason = reasons.MANUAL_REQUEST_WAITS
            draft.set_condition(reasons.ISSUING, "True", reason, message, now=snapshot.now)

    def _fail(self, failure: Verdict, request: CertificateRequest, snapshot: Snapshot, draft: Draft) -> None:
        why = causes.of_request(request)
        # The causes that cert-manager reports as Failed; the words of approvers and other issuers stay
        # theirs.
        reason = why.cause if failure.reason == reasons.FAILED else failure.reason
        failed_at = snapshot.now.replace(microsecond=0)
        draft.change(
            last_failure_time=failed_at,
            failed_issuance_attempts=backoff.counted(snapshot.certificate),
            next_private_key_secret_name=None,
        )
        record = RetryRecord(failed_at=failed_at, message=failure.message, not_before=why.not_before)
        draft.set_condition(reasons.ISSUING, "False", reason, record.text, now=snapshot.now)
        failed = snapshot.with_certificate(draft.certificate)
        if (moment := retry_time.retry_at(failed, self._limits)) is not None:
            if self._has_failed_at(failed_at):
                uid = snapshot.certificate.metadata.uid
                moment = renewal.put_off(moment, (moment - failed_at) * backoff.SPREAD, uid)
            # A manual renewal may fail while the certificate is valid for long.
            is_due = rules.first(rules.TRIGGER_RULES, failed) is not None
            record = retry_time.new_record(record.message, failed, moment if is_due else None)
            draft.set_condition(reasons.ISSUING, "False", reason, record.text, now=snapshot.now)
        draft.set_retry(record)
        draft.add_event("Warning", reason, record.text)

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:
        """Write the target Secret, if the request is issued and the Secret does not contain it yet."""
        request = snapshot.next_request if snapshot.is_issuing else None
        if request is None or failure_of(request, snapshot) is not None:
            return Did.NOTHING
        if not is_issued(request):
            if not temporary_is_requested(snapshot):
                return Did.NOTHING
            await self._store(await make_temporary(snapshot, effects), snapshot, effects)
            effects.send_event(snapshot.certificate, "Normal", "Issuing", TEMPORARY_ISSUED)
            return Did.WROTE
        if target.holds(snapshot, request) or _withheld_until(request, snapshot) is not None:
            return Did.NOTHING
        # Also where a client has started the issuance: a Secret that is not ours is never overwritten.
        if (taken := secret_is_not_ours(snapshot)) is not None:
            raise Blocked(taken.reason, taken.message)
        assert snapshot.next_key is not None, "`next_request` has it"
        pair = Pair(
            key_pem=snapshot.facts.encode(
                snapshot.next_key, snapshot.certificate.spec.key.encoding_or_default
            ),
            chain_pem=rewritten(request.status.certificate),
            ca_pem=target.at_issuance(snapshot, rewritten(request.status.ca.strip())),
        )
        await self._store(pair, snapshot, effects)
        return Did.WROTE

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """When a certificate that begins in the future may be stored."""
        request = snapshot.next_request if snapshot.is_issuing else None
        if request is None or not is_issued(request):
            return None
        return _withheld_until(request, snapshot)

    async def _store(self, pair: Pair, snapshot: Snapshot, effects: Effects) -> None:
        certificate = snapshot.certificate
        stores = keystores.desired(certificate.spec, snapshot.passwords)
        for blocked in stores.missing.values():
            raise blocked
        facts = snapshot.facts.certificate(pair.chain_pem)
        content = target.desired_content(
            certificate,
            pair,
            facts if isinstance(facts, CertificateFacts) else None,
            issuer=target.issuer_annotations(certificate),
            keystores=await effects.make_keystores(
                stores.stores, pair, snapshot.now, certificate.metadata.namespace
            ),
            owner=controller_reference(CERTIFICATES, certificate.metadata) if self._owns_secrets else None,
        )
        try:
            stored = await effects.apply_secret(certificate, snapshot.secret, content)
        except (Invalid, Forbidden) as refused:
            raise Rejected(target.REFUSED, target.refusal(snapshot, refused)) from refused
        if changed := target.needed(content, stored):
            raise Rejected(CHANGED, changed_by_admission(f'Secret "{stored.metadata.name}"', changed))


def is_issued(request: CertificateRequest) -> bool:
    """Whether the issuer has answered with a certificate."""
    return conditions.is_true(request.status.conditions, reasons.READY) and bool(request.status.certificate)


def failure_of(request: CertificateRequest, snapshot: Snapshot) -> Verdict | None:
    """Why this request gives no certificate that we could use; None while it may, or does."""
    current = request.status.conditions
    # Denials first: an issuer that has signed in spite of a denial must not win by being quick.
    for kind in (reasons.DENIED, reasons.INVALID_REQUEST):
        if (condition := conditions.find(current, kind)) is not None and condition.status == "True":
            return Verdict(condition.reason or kind, condition.message or f"the CertificateRequest is {kind}")
    ready = conditions.find(current, reasons.READY)
    if ready is not None and ready.reason == reasons.FAILED:
        return Verdict(ready.reason, ready.message)
    return _unusable(request, snapshot) if is_issued(request) else None


def _unusable(request: CertificateRequest, snapshot: Snapshot) -> Verdict | None:
    key, status = snapshot.next_key, request.status
    result = snapshot.facts.verification(status.certificate, status.ca, snapshot.now)
    if isinstance(result, str):
        text = f"the issuer returned something that is not a certificate: {result}"
    elif key is None or result.leaf.public_key_der != key.public:
        text = "the issuer returned a certificate for another key"
    elif result.leaf.not_after < snapshot.now:
        text = "the issuer returned a certificate that has expired"
    elif result.refusal:
        text = f"no client would accept the certificate that the issuer returned: {result.refusal}"
    elif result.faults and _has_good_chain(snapshot):
        text = (
            "the chain that the issuer returned is wrong, and the present one is not: "
            f"{'; '.join(result.faults)}"
        )
    else:
        return None
    return Verdict(reasons.INVALID_CERTIFICATE, text)


def _has_good_chain(snapshot: Snapshot) -> bool:
    """Whether the Secret has a certificate that is in use, with a chain that has no fault."""
    if snapshot.secret is None or rules.no_certificate_in_use(snapshot):
        return False
    data = snapshot.secret.data
    ca_pem = data.get(names.CA_CERT_KEY, b"")
    result = snapshot.facts.verification(data[names.TLS_CERT_KEY], ca_pem, snapshot.now)
    return isinstance(result, Verification) and not result.refusal and not result.faults


def _report_verification(request: CertificateRequest, snapshot: Snapshot, draft: Draft) -> None:
    """Keep the condition `Verified` of the certificate that has been issued."""
    result = snapshot.facts.verification(request.status.certificate, request.status.ca, snapshot.now)
    assert isinstance(result, Verification), "failure_of has judged it"
    kind, reason = reasons.CERTIFICATE_VERIFIED, reasons.CERTIFICATE_NOT_VERIFIED
    texts = []
    if refused := (*result.faults, *result.remarks):
        texts.append(f"Some clients refuse the certificate: {'; '.join(refused)}")
    if changed := desired.answer_differences(result.leaf, snapshot.certificate.spec):
        texts.append(f"The issuer has not issued what the spec says: {'; '.join(changed)}")
    if not texts:
        draft.remove_condition(kind)
        return
    message, before = ". ".join(texts), conditions.find(draft.certificate.status.conditions, kind)
    draft.set_condition(kind, "False", reason, message, now=snapshot.now)
    if before is None or before.message != message:
        draft.add_event("Warning", reason, message)


def _withheld_until(request: CertificateRequest, snapshot: Snapshot) -> datetime | None:
    """Until when an issued certificate that is not valid yet stays out of the Secret; None: it may be stored.
    A certificate that is valid now is replaced at its end at the earliest."""
    issued, present = snapshot.facts.certificate(request.status.certificate), snapshot.leaf
    if not isinstance(issued, CertificateFacts) or issued.not_before <= snapshot.now:
        return None
    if rules.no_certificate_in_use(snapshot) or not isinstance(present, CertificateFacts):
        return None
    return min(issued.not_before, present.not_after + desired.ONE_SECOND)


def _report_withheld(moment: datetime, snapshot: Snapshot, draft: Draft) -> None:
    issuing = conditions.find(snapshot.certificate.status.conditions, reasons.ISSUING)
    text = (
        f"The issued certificate is not valid yet; the present one stays in use until "
        f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    )
    if issuing is not None and issuing.message != text:
        draft.set_condition(reasons.ISSUING, issuing.status, issuing.reason, text, now=snapshot.now)


def temporary_is_requested(snapshot: Snapshot) -> bool:
    """Whether one is asked for, and the Secret has no pair that could be served."""
    notes = snapshot.certificate.metadata.annotations
    return (
        notes.get(names.ISSUE_TEMPORARY_CERTIFICATE) == "true"
        and rules.first(rules.NO_PAIR, snapshot) is not None
        and rules.secret_is_not_ours(snapshot) is None
    )


async def make_temporary(snapshot: Snapshot, effects: Effects) -> Pair:
    """A temporary certificate for the next key. The snapshot must have `next_key`.

    Raises `Blocked` where the spec asks for what no certificate can contain.
    """
    certificate, key = snapshot.certificate, snapshot.next_key
    spec, namespace = certificate.spec, certificate.metadata.namespace
    assert key is not None
    try:
        csr = await effects.new_csr(signing.marked(csr_plan(spec)), key, namespace)
        chain = signing.sign_temporarily(
            csr,
            duration=spec.requested_duration,
            is_ca=spec.is_ca,
            usages=spec.usages,
            now=snapshot.now,
        )
    except PkiError as error:
        raise Blocked("RequestFailed", f"No temporary certificate can be made: {error}") from error
    return Pair(snapshot.facts.encode(key, spec.key.encoding_or_default), chain, b"")
