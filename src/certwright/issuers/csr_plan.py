"""The signing request that the spec of a Certificate asks for.

`resources` and `pki` do not import each other; admission and the controllers both translate by this module.
"""

from __future__ import annotations

from certwright.kube.util.decoders import convert
from certwright.pki.csr import CsrPlan
from certwright.pki.names import NO_SUBJECT, Subject
from certwright.pki.sans import NameConstraints, NameSet, OtherName
from certwright.resources.certificate import CertificateSpec, NameConstraintItem


def csr_plan(spec: CertificateSpec) -> CsrPlan:
    """The content of the signing request for that spec."""
    constraints = spec.name_constraints
    return CsrPlan(
        subject=convert(spec.subject, Subject) if spec.subject else NO_SUBJECT,
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
            critical=constraints.critical,
            permitted=_names(constraints.permitted),
            excluded=_names(constraints.excluded),
        )
        if constraints
        else None,
        signature_algorithm=spec.signature_algorithm,
    )


def _names(item: NameConstraintItem | None) -> NameSet | None:
    return None if item is None or item.is_empty else convert(item, NameSet)
