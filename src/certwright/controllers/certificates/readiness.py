"""Judge whether the certificate in the Secret is fit for use, and record its dates. Before, record the ACME
server's renewal information (RFC 9773), and schedule the polls.

Wakes on:  Certificate; its Secret; its current CertificateRequest; notAfter; nextCheck; an answer of the CA
Reads:     snapshot
Writes:    Certificate.status.acme, conditions[Ready, CAKeyReplacement], notBefore, notAfter, renewalTime
Next:      Revisions; trigger at renewalTime
"""

from __future__ import annotations

from datetime import datetime, timedelta

from certwright.controllers.acme.ari_poller import AriPoller
from certwright.controllers.certificates import desired, renewals, rules
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.effects import Did, Effects
from certwright.controllers.certificates.snapshot import Plan, Snapshot
from certwright.kube.api import conditions
from certwright.pki.certificates import CertificateFacts
from certwright.resources import reasons
from certwright.resources.certificate import ARIStatus, CertificateACMEStatus

_CHECK_AGAIN = timedelta(hours=1)


class RenewalInformation:
    """The step that has ACME servers polled for renewal information, and records their answers."""

    def __init__(self, poller: AriPoller) -> None:
        self._poller = poller

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Put the answer into the status; remove it where there are no polls any longer."""
        facts = snapshot.leaf
        # From the draft, because an issuance that has just ended removes the information about the previous
        # one.
        current = draft.certificate.status.acme
        if not isinstance(facts, CertificateFacts) or not _is_enabled(snapshot):
            if current is not None:
                draft.change(acme=None)
            return
        # The URL of the issuer's account; empty while it is being registered.
        signer = snapshot.signer
        assert signer is not None
        ready = conditions.find(signer.status.conditions, reasons.READY)
        is_current = ready is not None and ready.observed_generation == signer.metadata.generation
        account = signer.status.acme.uri if is_current and signer.status.acme is not None else ""
        answer = self._poller.answer(snapshot.certificate.metadata.uid, facts)
        if answer is None or (answer.status is not None and not _is_from(answer.status, account)):
            if current is not None and current.ari is not None and not _is_of(current.ari, facts, account):
                draft.change(acme=None)
            return
        # The poller sends a server one request at a time: an answer that differs is newer than the status.
        if answer.status != (current.ari if current is not None else None):
            draft.change(acme=CertificateACMEStatus(ari=answer.status) if answer.status else None)

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:  # noqa: ARG002 - the protocol's
        """Start a poll where one is due; nothing is written here."""
        facts = snapshot.leaf
        if not isinstance(facts, CertificateFacts) or snapshot.is_issuing or not _is_enabled(snapshot):
            return Did.NOTHING
        if self._is_due(snapshot, facts):
            self._poller.start_poll(snapshot.certificate, facts)
        return Did.NOTHING

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """The time of the next poll."""
        acme = snapshot.certificate.status.acme
        due = acme.ari.next_check if acme is not None and acme.ari is not None else None
        if due is None:
            return snapshot.now + _CHECK_AGAIN if self._has_no_answer(snapshot) else None
        if due > snapshot.now:
            return due
        # A poll is in progress, or impossible: an answer, the end of an issuance and an issuer that becomes
        # ready all wake the key.
        return snapshot.now + _CHECK_AGAIN

    def _has_no_answer(self, snapshot: Snapshot) -> bool:
        """Whether a poll was impossible so far: the issuer of an imported certificate is not Ready yet."""
        facts, acme = snapshot.leaf, snapshot.certificate.status.acme
        if not isinstance(facts, CertificateFacts) or snapshot.is_issuing or not _is_enabled(snapshot):
            return False
        is_unknown = acme is None or acme.ari is None
        return is_unknown and self._poller.answer(snapshot.certificate.metadata.uid, facts) is None

    def _is_due(self, snapshot: Snapshot, facts: CertificateFacts) -> bool:
        certificate = snapshot.certificate
        acme = certificate.status.acme
        if acme is None or acme.ari is None:
            # The server has answered that it offers no renewal information.
            answer = self._poller.answer(certificate.metadata.uid, facts)
            return answer is None or answer.status is not None
        return acme.ari.next_check is None or acme.ari.next_check <= snapshot.now


def _is_enabled(snapshot: Snapshot) -> bool:
    spec = snapshot.signer.spec.acme if snapshot.signer is not None else None
    return spec is not None and spec.renewal_information_source != "None"


def _is_of(current: ARIStatus, facts: CertificateFacts, account: str) -> bool:
    is_newer = current.last_checked is None or current.last_checked >= facts.not_before
    return is_newer and _is_from(current, account)


def _is_from(current: ARIStatus, account: str) -> bool:
    """Whether the issuer's present server, at the present account, was asked; what is unknown is not
    compared."""
    return not (current.account and account) or current.account == account


UP_TO_DATE = "Certificate is up to date and has not expired"
NEW_KEY = (
    "clients that have installed it refuse what it signs from then on, until they install the new one; "
    "spec.privateKey.rotationPolicy: Never keeps the key"
)
WINDOW_ERROR = "Renewal is planned without regard to spec.renewal.windows"


class Readiness:
    """The step that reports the actual state, whatever the other steps are doing."""

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Set the `Ready` condition and the dates of the certificate in the Secret."""
        leaf = snapshot.leaf
        facts = leaf if isinstance(leaf, CertificateFacts) else None
        plan = renewals.plan(snapshot, facts) if facts else None
        if plan is not None and plan.problem and _is_news(plan, snapshot):
            draft.add_event("Warning", reasons.WINDOW_ERROR, f"{WINDOW_ERROR}: {plan.problem}")
        draft.change(
            not_before=facts.not_before if facts else None,
            not_after=facts.not_after if facts else None,
            renewal_time=plan.moment if plan else None,
        )
        _announce_new_key(snapshot, facts, draft)
        verdict = rules.first(rules.READINESS_RULES, snapshot)
        if verdict is None:
            draft.set_condition(reasons.READY, "True", "Ready", UP_TO_DATE, now=snapshot.now)
        else:
            draft.set_condition(reasons.READY, "False", verdict.reason, verdict.message, now=snapshot.now)

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """When the certificate becomes valid, or expires if nothing renews it before; or when a new key of a
        CA is announced."""
        begins = snapshot.certificate.status.not_before
        if begins is not None and begins > snapshot.now:
            return begins
        moment = snapshot.certificate.status.not_after
        # At notAfter itself it is still valid (RFC 5280 §4.1.2.5, "inclusive"): one second later it is not.
        expires = moment + desired.ONE_SECOND if moment and moment >= snapshot.now else None
        leaf = snapshot.leaf
        announced = _announcement(snapshot, leaf if isinstance(leaf, CertificateFacts) else None)
        return announced if announced is not None and announced > snapshot.now else expires


def _announcement(snapshot: Snapshot, facts: CertificateFacts | None) -> datetime | None:
    """When to announce that the renewal replaces a CA's key: a tenth of the CA's life before. None: the
    renewal keeps the key."""
    spec = snapshot.certificate.spec
    if facts is None or not spec.is_ca or spec.key.rotation_policy_or_default == "Never":
        return None
    moment = renewals.plan(snapshot, facts).moment
    return moment - (facts.not_after - facts.not_before) / 10 if moment is not None else None


def _announce_new_key(snapshot: Snapshot, facts: CertificateFacts | None, draft: Draft) -> None:
    kind, begins = reasons.CA_KEY_REPLACEMENT, _announcement(snapshot, facts)
    if facts is None or begins is None or snapshot.now < begins:
        draft.remove_condition(kind)
        return
    is_root = facts.subject_text == facts.issuer_text
    moment = renewals.plan(snapshot, facts).moment
    message = f"The renewal at {moment:%Y-%m-%dT%H:%M:%SZ} replaces the key of this CA: {NEW_KEY}"
    is_known = conditions.is_true(draft.certificate.status.conditions, kind)
    reason = reasons.REPLACES_ROOT_KEY if is_root else reasons.REPLACES_CA_KEY
    draft.set_condition(kind, "True", reason, message, now=snapshot.now)
    if not is_known:
        draft.add_event("Warning", kind, message)


def _is_news(plan: Plan, snapshot: Snapshot) -> bool:
    """Whether the renewal time or the spec has changed: then this pass writes the status, and the next one
    finds no change."""
    status = snapshot.certificate.status
    ready = conditions.find(status.conditions, reasons.READY)
    judged = ready.observed_generation if ready else -1
    return status.renewal_time != plan.moment or judged != snapshot.certificate.metadata.generation
