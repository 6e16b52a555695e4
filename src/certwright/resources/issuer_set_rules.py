"""Validation of an IssuerSet or ClusterIssuerSet, by its own content only.

Other API servers make the same checks by the CEL rules of `crd_rules.py`.
"""

from __future__ import annotations

from typing import Final

from certwright.kube.api.errors import FieldError, forbidden, invalid, required
from certwright.resources import checks
from certwright.resources.crd_rules import CLUSTER_ONLY, EITHER_KIND, NO_SETS, OURS_ONLY
from certwright.resources.issuer_set import MOST_MEMBERS, IssuerSetSpec
from certwright.resources.names import SETS_GROUP
from certwright.resources.references import IssuerReference

ONCE: Final = "each member is named once"


def validate(spec: IssuerSetSpec) -> list[FieldError]:
    """All errors in the spec of an IssuerSet; empty if it is valid."""
    path = "spec.issuers"
    if not spec.issuers:
        return [required(path, "name at least one Issuer or ClusterIssuer")]
    if len(spec.issuers) > MOST_MEMBERS:
        return [forbidden(path, f"at most {MOST_MEMBERS} members")]
    errors: list[FieldError] = []
    for number, member in enumerate(spec.issuers):
        at = f"{path}[{number}]"
        errors += _member(member, at)
        if any(member.same_issuer(other) for other in spec.issuers[:number]):
            errors.append(forbidden(at, ONCE))
    return errors


def validate_cluster(spec: IssuerSetSpec) -> list[FieldError]:
    """As `validate`, for a ClusterIssuerSet."""
    errors = validate(spec)
    for number, member in enumerate(spec.issuers):
        if member.is_ours and member.kind_or_default != "ClusterIssuer":
            errors.append(invalid(f"spec.issuers[{number}].kind", member.kind_or_default, CLUSTER_ONLY))
    return errors


def _member(member: IssuerReference, path: str) -> list[FieldError]:
    if member.group == SETS_GROUP:
        return [invalid(f"{path}.kind", member.kind, NO_SETS)]
    if not member.is_of_our_group:
        return [invalid(f"{path}.group", member.group, OURS_ONLY)]
    if not member.is_ours:
        return [invalid(f"{path}.kind", member.kind, EITHER_KIND)]
    return checks.check_object_name(member.name, f"{path}.name", "the issuer")
