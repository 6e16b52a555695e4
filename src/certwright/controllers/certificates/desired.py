"""The desired state: a spec translated into plans for keys and requests, and compared with what exists.

`resources` and `pki` do not import each other; only this module translates the fields of a spec to X.509.
"""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache

from certwright.controllers.certificates.parsed import KeyFacts
from certwright.pki import match
from certwright.pki import usages as key_usages
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import CsrFacts, CsrPlan
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyPlan
from certwright.pki.names import NO_SUBJECT, Subject
from certwright.pki.sans import NameConstraints, NameSet, OtherName
from certwright.resources import certificate as spec_of
from certwright.resources.certificate import CertificateSpec
from certwright.resources.request import CertificateRequestSpec

ONE_SECOND = timedelta(seconds=1)


def key_plan(spec: CertificateSpec) -> KeyPlan:
    """The kind of key. Raises `pki.errors.BadKey` for one that does not exist."""
    return _key_plan(spec.key)


@lru_cache(maxsize=64)
def _key_plan(key: spec_of.PrivateKeySpec) -> KeyPlan:
    return KeyPlan.of(key.algorithm_or_default, key.size_or_default)


def key_differences(key: KeyFacts, spec: CertificateSpec) -> tuple[str, ...]:
    """The fields of the spec that the key does not match; none where the spec asks for an impossible key,
    since no other key would match better."""
    try:
        plan = key_plan(spec)
    except PkiError:
        return ()
    if key.plan == plan:
        return ()
    same_algorithm = key.plan is not None and key.plan.algorithm is plan.algorithm
    return ("spec.privateKey.size",) if same_algorithm else ("spec.privateKey.algorithm",)


def csr_plan(spec: CertificateSpec) -> CsrPlan:
    """The content of the signing request."""
    return CsrPlan(
        subject=_subject(spec.subject) if spec.subject else NO_SUBJECT,
        common_name=spec.common_name,
        literal_subject=spec.literal_subject,
        dns_names=spec.dns_names,
        ip_addresses=spec.ip_addresses,
        uris=spec.uris,
        email_addresses=spec.email_addresses,
        other_names=tuple(OtherName(name.oid, name.utf8_value) for name in spec.other_names),
        is_ca=spec.is_ca,
        usages=spec.usages,
        encode_usages=spec.encodes_usages,
        name_constraints=_constraints(spec.name_constraints) if spec.name_constraints else None,
        signature_algorithm=spec.signature_algorithm,
    )


def _subject(subject: spec_of.X509Subject) -> Subject:
    return Subject(
        countries=subject.countries,
        organizations=subject.organizations,
        organizational_units=subject.organizational_units,
        localities=subject.localities,
        provinces=subject.provinces,
        street_addresses=subject.street_addresses,
        postal_codes=subject.postal_codes,
        serial_number=subject.serial_number,
    )


def _constraints(constraints: spec_of.NameConstraints) -> NameConstraints:
    return NameConstraints(
        critical=constraints.critical,
        permitted=_names(constraints.permitted),
        excluded=_names(constraints.excluded),
    )


def _names(item: spec_of.NameConstraintItem | None) -> NameSet | None:
    if item is None or item.is_empty:
        return None
    return NameSet(
        dns_domains=item.dns_domains,
        ip_ranges=item.ip_ranges,
        email_addresses=item.email_addresses,
        uri_domains=item.uri_domains,
    )


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
    """As `request_differences`, for a request that another program has made: without the fields that it did
    not compare, so that nothing is re-issued because another program compares more."""
    ignored = _NOT_COMPARED
    if request.duration is None or spec.duration is None:
        ignored |= {"spec.duration"}
    return tuple(field for field in request_differences(request, csr, spec) if field not in ignored)


def certificate_differences(certificate: CertificateFacts, spec: CertificateSpec) -> tuple[str, ...]:
    """The fields of the spec that an issued certificate does not match, with tolerance for what issuers
    change."""
    return tuple(f"spec.{field}" for field in match.certificate_differences(certificate, csr_plan(spec)))


def _usages(usages: tuple[str, ...], *, is_ca: bool) -> frozenset[str]:
    try:
        return key_usages.canonical(key_usages.complete(usages, is_ca=is_ca))
    except PkiError:
        # A name of a newer version: equal to itself at least.
        return frozenset(usages)
