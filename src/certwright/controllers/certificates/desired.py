"""The desired state: a spec translated into plans for keys and requests, and compared with what exists."""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

from certwright.controllers.certificates.parsed import KeyFacts
from certwright.issuers.csr_plan import csr_plan
from certwright.kube.util.durations import format_duration
from certwright.pki import match
from certwright.pki import usages as key_usages
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import CsrFacts
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyPlan
from certwright.resources import certificate as spec_of
from certwright.resources.certificate import CertificateSpec
from certwright.resources.request import CertificateRequestSpec

ONE_SECOND = timedelta(seconds=1)
_AN_HOUR = timedelta(hours=1)


@lru_cache(maxsize=64)
def key_plan(key: spec_of.PrivateKeySpec) -> KeyPlan:
    """The kind of key. Raises `pki.errors.BadKey` for an unknown algorithm or size."""
    return KeyPlan.of(key.algorithm_or_default, key.size_or_default)


def key_differences(key: KeyFacts, spec: CertificateSpec) -> tuple[str, ...]:
    """The fields of the spec that the key does not match; none where the spec asks for an impossible key,
    since no other key would match better."""
    try:
        plan = key_plan(spec.key)
    except PkiError:
        return ()
    if key.plan == plan:
        return ()
    same_algorithm = key.plan is not None and key.plan.algorithm is plan.algorithm
    return ("spec.privateKey.size",) if same_algorithm else ("spec.privateKey.algorithm",)


def request_differences(
    request: CertificateRequestSpec, csr: CsrFacts, spec: CertificateSpec
) -> tuple[str, ...]:
    """The fields of the spec that a CertificateRequest does not match, as `spec.dnsNames`."""
    differences = [f"spec.{field}" for field in match.request_differences(csr, csr_plan(spec))]
    if request.is_ca != spec.is_ca:
        differences.append("spec.isCA")
    if (request.usages, request.is_ca) != (spec.usages, spec.is_ca) and _usages(
        request.usages, is_ca=request.is_ca
    ) != _usages(spec.usages, is_ca=spec.is_ca):
        differences.append("spec.usages")
    # A request without a duration was for the default one, as a spec without it is.
    if request.duration != spec.duration and request.requested_duration != spec.requested_duration:
        differences.append("spec.duration")
    if not request.issuer_ref.same_issuer(spec.issuer_ref):
        differences.append("spec.issuerRef")
    return tuple(differences)


# What cert-manager does not compare (`pkg/util/pki/match.go`, `RequestMatchesSpec`).
_NOT_COMPARED = frozenset({"spec.encodeUsagesInRequest", "spec.signatureAlgorithm", "spec.nameConstraints"})


def others_request_differences(
    request: CertificateRequestSpec, csr: CsrFacts, spec: CertificateSpec
) -> tuple[str, ...]:
    """As `request_differences`, for a request of another program: fields that the other program did not
    compare are ignored, so that no certificate is re-issued because of them."""
    ignored = _NOT_COMPARED
    if request.duration is None or spec.duration is None:
        ignored |= {"spec.duration"}
    return tuple(field for field in request_differences(request, csr, spec) if field not in ignored)


def certificate_differences(certificate: CertificateFacts, spec: CertificateSpec) -> tuple[str, ...]:
    """The fields of the spec that an issued certificate does not match, with tolerance for what issuers
    change."""
    return tuple(f"spec.{field}" for field in match.certificate_differences(certificate, csr_plan(spec)))


def answer_differences(certificate: CertificateFacts, spec: CertificateSpec) -> tuple[str, ...]:
    """The fields of the spec that the issued certificate deviates from, each with the issued value."""
    differing = match.answer_differences(certificate, csr_plan(spec))
    changed = [f"spec.{field} (issued: {issued})" for field, issued in differing]
    lifetime = certificate.not_after - certificate.not_before
    # CAs let a certificate begin up to an hour ago, for clients with slow clocks.
    tolerance = max(_AN_HOUR, lifetime / 20)
    if spec.duration is not None and abs(lifetime - spec.requested_duration) > tolerance:
        changed.append(f"spec.duration (issued: {format_duration(lifetime)})")
    return tuple(changed)


def _usages(usages: tuple[str, ...], *, is_ca: bool) -> frozenset[str]:
    try:
        return key_usages.canonical(key_usages.complete(usages, is_ca=is_ca))
    except PkiError:
        # A name of a newer version: equal to itself at least.
        return frozenset(usages)
