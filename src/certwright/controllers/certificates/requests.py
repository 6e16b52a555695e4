"""Request the certificate: one CertificateRequest for each revision. `Revisions` deletes those of old
revisions (spec.revisionHistoryLimit).

Wakes on:  nextPrivateKeySecretName; our CertificateRequests of revision n+1
Reads:     snapshot
Writes:    CertificateRequest
Next:      signing
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from certwright.controllers.acme.identifiers import names_of, names_of_identity
from certwright.controllers.cache.indexes import revision_number
from certwright.controllers.certificates.draft import Blocked
from certwright.controllers.certificates.effects import Did, Effects, changed_on_create
from certwright.controllers.certificates.parsed import KeyFacts
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.issuers.csr_plan import csr_plan
from certwright.kube.api import conditions
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import CONTROLLER_REFERENCE, ObjectMeta, removed_metadata
from certwright.pki.certificates import CertificateFacts, certificate_id
from certwright.pki.errors import PkiError
from certwright.resources import names, reasons
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import write_member
from certwright.resources.request import CertificateRequest, CertificateRequestSpec
from certwright.resources.request_names import request_names
from certwright.resources.table import CERTIFICATES

_LONGEST_RENEWED_BY: Final = 400


class Requests:
    """The step that keeps exactly one request of the next revision while issuing: for the next key and the
    present spec.

    `copied` selects the annotations that are copied from the Certificate (`--copied-annotation-prefixes`).
    """

    def __init__(self, copied: Sequence[str] = names.COPIED_ANNOTATION_PREFIXES) -> None:
        self._copied = copied

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:
        """Delete a stale request of the next revision, or create the one that is missing."""
        key = snapshot.next_key
        if not snapshot.is_issuing or key is None:
            return Did.NOTHING
        chosen = snapshot.next_request
        for request in snapshot.requests_of(snapshot.next_revision):
            if request is not chosen:
                await effects.delete_request(request)
                return Did.WROTE
        if chosen is not None:
            return Did.NOTHING
        request = await self._make(snapshot, key, effects)
        made = await effects.create_request(request)
        if made is None:
            return Did.WROTE
        if (changed := _needed(request, made)) or (changed := snapshot.differences(made)):
            # As a stale one it would be deleted and made again, for ever.
            await effects.delete_request(made)
            raise changed_on_create(f'CertificateRequest "{request.metadata.name}"', changed)
        text = f'Created new CertificateRequest resource "{request.metadata.name}"'
        effects.send_event(snapshot.certificate, "Normal", "Requested", text)
        return Did.HANDED_ON

    async def _make(self, snapshot: Snapshot, key: KeyFacts, effects: Effects) -> CertificateRequest:
        certificate, spec = snapshot.certificate, snapshot.certificate.spec
        try:
            csr = await effects.new_csr(csr_plan(spec), key, certificate.metadata.namespace)
        except PkiError as error:
            raise Blocked(
                "RequestFailed", f"No signing request can be made from this spec: {error}"
            ) from error
        # Recorded here it needs no write of its own when the request is sent there.
        member = effects.active_member(certificate)
        meta = ObjectMeta(
            name=request_name(snapshot, effects),
            namespace=certificate.metadata.namespace,
            labels=certificate.metadata.labels,
            annotations={
                **copied_annotations(certificate.metadata, self._copied),
                names.CERTIFICATE_NAME: certificate.metadata.name,
                names.CERTIFICATE_REVISION: str(snapshot.next_revision),
                names.SPEC_GENERATION: str(certificate.metadata.generation),
                names.PRIVATE_KEY_SECRET_NAME: certificate.status.next_private_key_secret_name or "",
                **_replaces(snapshot),
                **_renewed_by(certificate),
                **(write_member(member) if member is not None else {}),
            },
            owner_references=(controller_reference(CERTIFICATES, certificate.metadata),),
        )
        asked = CertificateRequestSpec(
            duration=spec.duration,
            issuer_ref=spec.issuer_ref,
            request=csr,
            is_ca=spec.is_ca,
            usages=spec.usages,
        )
        request = CertificateRequest(metadata=meta, spec=asked)
        if differing := snapshot.differences(request):
            # Such a request would be taken for a stale one and made again, for ever.
            text = f"The signing request made from this spec does not match it in {', '.join(differing)}"
            raise Blocked("RequestFailed", text)
        return request


def _needed(request: CertificateRequest, made: CertificateRequest) -> tuple[str, ...]:
    """The parts without which the request would not be found, and that were removed on creation."""
    needed = {
        CONTROLLER_REFERENCE,
        *(f"the annotation {key}" for key in (names.CERTIFICATE_REVISION, names.PRIVATE_KEY_SECRET_NAME)),
    }
    removed = removed_metadata(request.metadata, made.metadata)
    return tuple(part for part in removed if part in needed)


def _replaces(snapshot: Snapshot) -> dict[str, str]:
    """The id of the certificate to replace, if its server has been asked for renewal information: an order
    that names it does not count against the server's limits. Servers require that both certificates have a
    name in common (RFC 9773 §5). The account is compared when the order is placed."""
    acme = snapshot.certificate.status.acme
    facts = snapshot.leaf
    if acme is None or acme.ari is None or not isinstance(facts, CertificateFacts):
        return {}
    spec = snapshot.certificate.spec
    if not names_of_identity(facts) & names_of(spec.dns_names, spec.ip_addresses, spec.common_name):
        return {}
    identifier = certificate_id(facts)
    return {names.REPLACES: identifier} if identifier else {}


def _renewed_by(certificate: Certificate) -> dict[str, str]:
    """Who has asked for the request, as the condition says that it replaces: the request is kept longer."""
    issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
    if issuing is None or issuing.reason != reasons.MANUALLY_TRIGGERED:
        return {}
    return {names.RENEWED_BY: issuing.message[:_LONGEST_RENEWED_BY]}


def request_name(snapshot: Snapshot, effects: Effects) -> str:
    """The name of the next request: the second where a request of another owner has the first.

    The name is known beforehand, so that a create whose answer was lost is found again instead of repeated.
    """
    meta = snapshot.certificate.metadata
    first, second = request_names(meta.name, meta.uid, snapshot.next_revision)
    return second if effects.has_request(meta.namespace, first) else first


def copied_annotations(meta: ObjectMeta, prefixes: Sequence[str]) -> dict[str, str]:
    """The Certificate's annotations to copy to its requests: names that begin with one of the `prefixes`
    (`*`: any name), and with no prefix marked with `-`."""
    left_out = tuple(prefix[1:] for prefix in prefixes if prefix.startswith("-"))
    taken = tuple(prefix.removesuffix("*") for prefix in prefixes if not prefix.startswith("-"))
    notes = [(key, value) for key, value in meta.annotations.items() if key not in names.STATE]
    return {key: value for key, value in notes if key.startswith(taken) and not key.startswith(left_out)}


class Revisions:
    """The step that deletes requests of old revisions. A request without a revision is not ours, and
    stays."""

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:
        """Delete the oldest requests beyond the limit, of a Certificate that is Ready or is to be."""
        status = snapshot.certificate.status
        limit = snapshot.certificate.spec.revisions_kept
        # If another writer keeps overwriting the Secret, only the issuing pass sees Ready.
        is_well = conditions.is_true(status.conditions, reasons.READY) or snapshot.is_issuing
        if not is_well or limit < 1:
            return Did.NOTHING
        # One that is in progress, or has failed, belongs to the next revision and counts for nothing here.
        done = [r for r in snapshot.requests if 0 < revision_number(r.metadata) < snapshot.next_revision]
        beyond = sorted(done, key=lambda request: revision_number(request.metadata))[:-limit]
        # All in one step: those of years, where the limit is new, are more than a pass has rounds.
        for request in beyond:
            await effects.delete_request(request)
        return Did.CLEARED if beyond else Did.NOTHING
