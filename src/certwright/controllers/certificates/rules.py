"""Policy rules: the differences between actual and desired state, each with a sentence.

A rule reads a snapshot and returns a verdict, or None if it does not apply. Rules stand in ordered lists; the
first verdict counts, so each rule may rely on the rules before it. `trigger` and `readiness` share rules: a
certificate that must be issued is not ready.

Reasons and messages are cert-manager's (`internal/controller/certificates/policies/checks.go`), because
people and programs match on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from certwright.controllers.cache.transforms import is_for_key
from certwright.controllers.certificates import desired, renewals
from certwright.controllers.certificates.ownership import secret_has_reserved_type
from certwright.controllers.certificates.parsed import KeyFacts
from certwright.controllers.certificates.snapshot import Rule, Snapshot, Verdict
from certwright.kube.api import conditions
from certwright.pki import signing
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names, reasons
from certwright.resources.certificate import Certificate
from certwright.resources.references import IssuerReference


def first(rules: Iterable[Rule], snapshot: Snapshot) -> Verdict | None:
    """The first verdict, or None where no rule has one.

    Several steps ask the same rules about the same snapshot; each is judged once.
    """
    judged = snapshot.judged
    for rule in rules:
        if rule not in judged:
            judged[rule] = rule(snapshot)
        if (verdict := judged[rule]) is not None:
            return verdict
    return None


def secret_does_not_exist(snapshot: Snapshot) -> Verdict | None:
    """There is no target Secret."""
    if snapshot.secret is None:
        return Verdict(reasons.DOES_NOT_EXIST, "Issuing certificate as Secret does not exist")
    return None


def secret_is_missing_data(snapshot: Snapshot) -> Verdict | None:
    """The target Secret lacks key or certificate."""
    data = snapshot.secret.data if snapshot.secret else {}
    if not data:
        what = "any data"
    elif not data.get(names.TLS_PRIVATE_KEY_KEY):
        what = "a private key"
    elif not data.get(names.TLS_CERT_KEY):
        what = "a certificate"
    else:
        return None
    return Verdict(reasons.MISSING_DATA, f"Issuing certificate as Secret does not contain {what}")


def key_pair_is_invalid(snapshot: Snapshot) -> Verdict | None:
    """Key or certificate cannot be read, or they do not belong together."""
    key, certificate = snapshot.key, snapshot.leaf
    if not isinstance(key, KeyFacts):
        text = f"Issuing certificate as Secret contains invalid private key data: {key}"
        return Verdict(reasons.INVALID_KEY_PAIR, text)
    if not isinstance(certificate, CertificateFacts):
        text = f"Issuing certificate as Secret contains an invalid certificate: {certificate}"
        return Verdict(reasons.INVALID_CERTIFICATE, text)
    if key.public != certificate.public_key_der:
        text = "Issuing certificate as Secret contains a private key that does not match the certificate"
        return Verdict(reasons.INVALID_KEY_PAIR, text)
    return None


def certificate_is_temporary(snapshot: Snapshot) -> Verdict | None:
    """The certificate is temporary, and the first real one has not been issued yet."""
    certificate = snapshot.leaf
    if not isinstance(certificate, CertificateFacts) or not signing.is_temporary(certificate):
        return None
    text = "Issuing certificate as Secret contains a temporary certificate"
    return Verdict(reasons.TEMPORARY_CERTIFICATE, text)


def issuer_is_another(snapshot: Snapshot) -> Verdict | None:
    """The Secret names another issuer as its signer; a Secret without a signer is not judged."""
    notes = snapshot.secret.metadata.annotations if snapshot.secret else {}
    keys = (names.ISSUER_NAME, names.ISSUER_KIND, names.ISSUER_GROUP)
    if not any(key in notes for key in keys):
        return None
    name, kind, group = (notes.get(key, "") for key in keys)
    was = IssuerReference(name=name, kind=kind, group=group)
    if was.same_issuer(snapshot.certificate.spec.issuer_ref):
        return None
    text = f'"{was.kind_or_default}.{was.group_or_default}/{was.name}"'
    return Verdict(reasons.INCORRECT_ISSUER, f"Issuing certificate as Secret was previously issued by {text}")


def certificate_is_another(snapshot: Snapshot) -> Verdict | None:
    """The Secret's annotation names another Certificate."""
    notes = snapshot.secret.metadata.annotations if snapshot.secret else {}
    name = notes.get(names.CERTIFICATE_NAME, snapshot.certificate.metadata.name)
    if name == snapshot.certificate.metadata.name:
        return None
    return Verdict(
        reasons.INCORRECT_CERTIFICATE,
        f'Secret was issued for "{name}". If this message is not transient, you might have two conflicting '
        "Certificates pointing to the same secret.",
    )


def key_differs_from_spec(snapshot: Snapshot) -> Verdict | None:
    """The key is of another algorithm or size than the spec wants."""
    key = snapshot.key
    differing = desired.key_differences(key, snapshot.certificate.spec) if isinstance(key, KeyFacts) else ()
    if not differing:
        return None
    text = f"Existing private key is not up to date for spec: {_bracketed(differing)}"
    return Verdict(reasons.SECRET_MISMATCH, text)


def key_differs_from_request(snapshot: Snapshot) -> Verdict | None:
    """The key has been changed since the current request was made."""
    request, key = snapshot.current_request, snapshot.key
    if request is None or not isinstance(key, KeyFacts):
        return None
    csr = snapshot.facts.csr(request.spec.request)
    if csr is None:
        text = "Failed to decode current CertificateRequest: its spec.request is not a signing request"
        return Verdict(reasons.INVALID_CERTIFICATE_REQUEST, text)
    if is_for_key(request.spec.request, key.public):
        return None
    text = "Secret contains a private key that does not match the current CertificateRequest"
    return Verdict(reasons.SECRET_MISMATCH, text)


def spec_has_changed(snapshot: Snapshot) -> Verdict | None:
    """The spec asks for something else than the current request did.

    Without that request the certificate itself is compared, loosely, because issuers may change what they
    were asked for.
    """
    if (request := snapshot.current_request) is not None:
        differing = snapshot.differences(request)
        text = "Fields on existing CertificateRequest resource not up to date"
        return Verdict(reasons.REQUEST_CHANGED, f"{text}: {_bracketed(differing)}") if differing else None
    certificate = snapshot.leaf
    if not isinstance(certificate, CertificateFacts):
        return None
    differing = desired.certificate_differences(certificate, snapshot.certificate.spec)
    text = "Issuing certificate as Existing issued Secret is not up to date for spec"
    return Verdict(reasons.SECRET_MISMATCH, f"{text}: {_bracketed(differing)}") if differing else None


def renewal_is_due(snapshot: Snapshot) -> Verdict | None:
    """The renewal time has passed."""
    certificate = snapshot.leaf
    if not isinstance(certificate, CertificateFacts):
        return None
    moment = renewals.plan(snapshot, certificate).moment
    if moment is None or snapshot.now < moment:
        return None
    shown = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} +0000 UTC"
    return Verdict(reasons.RENEWING, f"Renewing certificate as renewal was scheduled at {shown}")


def certificate_has_expired(snapshot: Snapshot) -> Verdict | None:
    """The certificate is no longer valid."""
    certificate = snapshot.leaf
    if not isinstance(certificate, CertificateFacts) or snapshot.now <= certificate.not_after:
        return None
    moment = certificate.not_after.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S UTC")
    return Verdict(reasons.EXPIRED, f"Certificate expired on {moment}")


def certificate_is_not_valid_yet(snapshot: Snapshot) -> Verdict | None:
    """The certificate begins in the future: every client refuses it until then."""
    certificate = snapshot.leaf
    if not isinstance(certificate, CertificateFacts) or snapshot.now >= certificate.not_before:
        return None
    moment = certificate.not_before.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Verdict(
        reasons.NOT_YET_VALID,
        f"Certificate is not valid before {moment}; if the clock of this machine or of the issuer was wrong, "
        "correct it and renew the certificate",
    )


def no_certificate_in_use(snapshot: Snapshot) -> bool:
    """Whether the Secret lacks a real certificate with its key that is valid now."""
    broken = first((*_SHARED[:4], certificate_has_expired, certificate_is_not_valid_yet), snapshot)
    return broken is not None


def secret_belongs_to_another(snapshot: Snapshot) -> Verdict | None:
    """Another Certificate has the same `secretName`, and priority."""
    owner = owner_of_secret_name(snapshot)
    if owner is snapshot.certificate:
        return None
    secret = snapshot.certificate.spec.secret_name
    return Verdict(
        reasons.INCORRECT_CERTIFICATE,
        f'Secret "{secret}" is already used by Certificate "{owner.metadata.name}"; give this Certificate '
        "another spec.secretName",
    )


def secret_is_not_ours(snapshot: Snapshot) -> Verdict | None:
    """The target Secret must not be written: its type is reserved, or it belongs to another Certificate."""
    return secret_has_reserved_type(snapshot) or secret_belongs_to_another(snapshot)


NO_PAIR: tuple[Rule, ...] = (secret_does_not_exist, secret_is_missing_data, key_pair_is_invalid)
"""Does the Secret lack a pair that could be served?"""

# The order matters: from a missing Secret to one that differs from the spec.
_SHARED: tuple[Rule, ...] = (
    *NO_PAIR,
    certificate_is_temporary,
    issuer_is_another,
    certificate_is_another,
    key_differs_from_spec,
    key_differs_from_request,
    spec_has_changed,
)
TRIGGER_RULES: tuple[Rule, ...] = (*_SHARED, renewal_is_due)
"""Must a new certificate be issued?"""

READINESS_RULES: tuple[Rule, ...] = (
    secret_is_not_ours,
    *_SHARED,
    certificate_has_expired,
    certificate_is_not_valid_yet,
)
"""Is the certificate in the Secret unfit for use? (Being due for renewal does not make it so.)"""


def owner_of_secret_name(snapshot: Snapshot) -> Certificate:
    """The Certificate that may write the target Secret: the Certificate that wrote it last, else the oldest,
    else the first by name."""
    if not snapshot.rivals:
        return snapshot.certificate
    candidates = (snapshot.certificate, *snapshot.rivals)
    notes = snapshot.secret.metadata.annotations if snapshot.secret else {}
    named = notes.get(names.CERTIFICATE_NAME)
    for candidate in candidates:
        if candidate.metadata.name == named:
            return candidate
    return min(candidates, key=lambda c: (c.metadata.creation_timestamp or snapshot.now, c.metadata.name))


def is_contested(snapshot: Snapshot) -> bool:
    """Whether the wait in the status exists because another writer keeps overwriting or deleting the
    Secret."""
    issuing = conditions.find(snapshot.certificate.status.conditions, reasons.ISSUING)
    return issuing is not None and issuing.reason in (reasons.SECRET_OVERWRITTEN, reasons.SECRET_DELETED)


def _bracketed(fields: Iterable[str]) -> str:
    return f"[{' '.join(fields)}]"
