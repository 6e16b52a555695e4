"""The signing request that the spec of a Certificate asks for.

`resources` and `pki` do not import each other; admission and the controllers both translate by this module.
"""

from __future__ import annotations

from certwright.pki.csr import CsrPlan
from certwright.pki.names import NO_SUBJECT, Subject
from certwright.pki.sans import NameConstraints, NameSet, OtherName
from certwright.resources import certificate as spec_of
from certwright.resources.certificate import CertificateSpec


def csr_plan(spec: CertificateSpec) -> CsrPlan:
    """The content of the signing request for that spec."""
    return CsrPlan(
        subject=Subject(
            countries=spec.subject.countries,
            organizations=spec.subject.organizations,
            organizational_units=spec.subject.organizational_units,
            localities=spec.subject.localities,
            provinces=spec.subject.provinces,
            street_addresses=spec.subject.street_addresses,
            postal_codes=spec.subject.postal_codes,
            serial_number=spec.subject.serial_number,
        )
        if spec.subject
        else NO_SUBJECT,
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
        name_constraints=NameConstraints(
            critical=spec.name_constraints.critical,
            permitted=_names(spec.name_constraints.permitted),
            excluded=_names(spec.name_constraints.excluded),
        )
        if spec.name_constraints
        else None,
        signature_algorithm=spec.signature_algorithm,
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
