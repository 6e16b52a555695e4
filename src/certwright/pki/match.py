"""Comparison of requests and certificates with a spec.

Differing fields have the names of a Certificate's spec, without the leading `spec.`.

Source: cert-manager `pkg/util/pki/match.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cryptography import x509

from certwright.kube.util.encoding import one_line
from certwright.pki import keys, names, sans, usages
from certwright.pki.certificates import CertificateFacts, Identity
from certwright.pki.csr import CsrFacts, CsrPlan
from certwright.pki.errors import PkiError

_LISTED = 5
_SUBJECT_FIELDS: dict[str, str] = {
    "serial_number": "subject.serialNumber",
    "organizations": "subject.organizations",
    "countries": "subject.countries",
    "localities": "subject.localities",
    "organizational_units": "subject.organizationalUnits",
    "postal_codes": "subject.postalCodes",
    "provinces": "subject.provinces",
    "street_addresses": "subject.streetAddresses",
}


def request_differences(facts: CsrFacts, plan: CsrPlan) -> tuple[str, ...]:
    """The fields in which a signing request differs from `plan`; empty if none does.

    Lists are compared without regard to order and duplicates. Usages (except whether the request states any)
    and `isCA` are ignored, because the CertificateRequest around it states them. A plan that cannot be put
    into a request at all (e.g. an invalid address) differs in that field.
    """
    differing = [*_address_differences(facts, plan)]
    if _canonical(plan.dns_names) != _canonical(facts.dns_names):
        differing.append("dnsNames")
    if frozenset(facts.other_names) != frozenset(plan.other_names):
        differing.append("otherNames")
    differing += _subject_differences(facts, plan)
    if facts.name_constraints != sans.canonical_constraints(plan.name_constraints):
        differing.append("nameConstraints")
    if plan.encode_usages != (facts.usages is not None):
        differing.append("encodeUsagesInRequest")
    # Parses the request once more for this: few specs name an algorithm.
    if plan.signature_algorithm and not keys.uses_hash_of(
        plan.signature_algorithm, facts.parsed.signature_hash_algorithm
    ):
        differing.append("signatureAlgorithm")
    return tuple(differing)


def certificate_differences(facts: CertificateFacts, plan: CsrPlan) -> tuple[str, ...]:
    """The fields in which a certificate differs from `plan`, compared leniently.

    Issuers change requested values. So the subject is ignored except for the common name, which may move to
    the DNS names, or be replaced by one of them.
    """
    return (*_name_differences(facts, plan), *_address_differences(facts, plan))


def answer_differences(facts: CertificateFacts, plan: CsrPlan) -> tuple[tuple[str, str], ...]:
    """The fields in which an issued certificate differs from `plan`, with the issued values.

    Names are compared as in `certificate_differences`. Of the usages, the planned extended usages are
    compared; without any, a DNS name or an address needs a usage of TLS.
    """
    issued = {
        "commonName": facts.common_name,
        "dnsNames": _listed(facts.dns_names),
        "ipAddresses": _listed(facts.ip_addresses),
        "uris": _listed(facts.uris),
        "emailAddresses": _listed(facts.email_addresses),
    }
    fields = dict.fromkeys(certificate_differences(facts, plan))
    # RFC 9525 §2: clients do not look for DNS names in the common name.
    if not _canonical(plan.dns_names) <= _canonical(facts.dns_names):
        fields["dnsNames"] = None
    differing = [(field, issued[field] or "none") for field in fields]
    if frozenset(facts.other_names) != frozenset(plan.other_names):
        differing.append(("otherNames", _listed(tuple(name.oid for name in facts.other_names)) or "none"))
    if facts.is_ca != plan.is_ca:
        differing.append(("isCA", "true" if facts.is_ca else "false"))
    planned, allowed = usages.extended(plan.usages), usages.extended(facts.usages)
    if not planned and (plan.dns_names or plan.ip_addresses):
        suffices = bool(allowed & {"server auth", "client auth"})
    else:
        suffices = planned <= allowed
    if allowed and "any" not in allowed and not suffices:
        differing.append(("usages", ", ".join(sorted(allowed))))
    return tuple(differing)


def _listed(values: Sequence[str]) -> str:
    shown = one_line(", ".join(value[:100] for value in values[:_LISTED]))
    return f"{shown} and {len(values) - _LISTED} more" if len(values) > _LISTED else shown


def _name_differences(facts: CertificateFacts, plan: CsrPlan) -> Iterable[str]:
    expected, expected_cn = _canonical(plan.dns_names), _canonical((_expected_common_name(plan),))
    actual, actual_cn = _canonical(facts.dns_names), _canonical((facts.common_name,))
    expected_all, actual_all = expected | expected_cn, actual | actual_cn
    if expected_all == actual_all:
        return
    if not (expected_cn <= actual_all and actual_cn <= expected_all):
        yield "commonName"
    if not (expected <= actual_all and actual <= expected_all):
        yield "dnsNames"


def _expected_common_name(plan: CsrPlan) -> str:
    if not plan.literal_subject:
        return plan.common_name
    try:
        return names.read_subject(names.literal_name(plan.literal_subject))[1]
    except PkiError:
        return ""


def _canonical(dns_names: Iterable[str]) -> frozenset[str]:
    return frozenset(sans.canonical_dns_name(name) for name in dns_names if name)


def _canonical_ip(text: str) -> str:
    try:
        return sans.canonical_ip(text)
    except PkiError:
        return text


def _address_differences(facts: Identity, plan: CsrPlan) -> Iterable[str]:
    if frozenset(map(_canonical_ip, plan.ip_addresses)) != frozenset(facts.ip_addresses):
        yield "ipAddresses"
    if frozenset(plan.uris) != frozenset(facts.uris):
        yield "uris"
    if frozenset(plan.email_addresses) != frozenset(facts.email_addresses):
        yield "emailAddresses"


def _subject_differences(facts: CsrFacts, plan: CsrPlan) -> list[str]:
    if plan.literal_subject:
        return [] if _same_name(facts.parsed.subject, plan.literal_subject) else ["literalSubject"]
    differing = [] if facts.common_name == plan.common_name else ["commonName"]
    if facts.subject != plan.subject:
        differing += [
            wire
            for field, wire in _SUBJECT_FIELDS.items()
            if _values(facts.subject, field) != _values(plan.subject, field)
        ]
    return differing


def _same_name(subject: x509.Name, literal_subject: str) -> bool:
    try:
        return subject == names.literal_name(literal_subject)
    except PkiError:
        return False


def _values(subject: names.Subject, field: str) -> frozenset[str]:
    value: str | tuple[str, ...] = getattr(subject, field)
    return frozenset((value,) if isinstance(value, str) else value)
