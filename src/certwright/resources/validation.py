"""Entry point of validation: an API server calls it before it accepts a write.

It takes objects as dicts that match the kind's schema, because that is what a server has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from certwright.kube.api.codec import DecodeError, from_dict
from certwright.kube.api.errors import FieldError, required
from certwright.kube.api.kinds import AnyKind
from certwright.resources import (
    certificate_rules,
    certificate_warnings,
    delivery_rules,
    issuer_rules,
    issuer_set_rules,
    operator_policy,
    order_rules,
    request_rules,
)
from certwright.resources.acme import Challenge
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.issuer_set import ClusterIssuerSet, IssuerSet
from certwright.resources.names import ACME_GROUP, GROUP, SETS_GROUP
from certwright.resources.operator_policy import OperatorPolicy, Violation
from certwright.resources.table import CERTIFICATES, OUR_KINDS

_KINDS: Final[dict[tuple[str, str], AnyKind]] = {(kind.kind, kind.group): kind for kind in OUR_KINDS}


def _issuer(issuer: Issuer | ClusterIssuer) -> list[FieldError]:
    return issuer_rules.validate(issuer.spec)


def _issuer_set(issuer_set: IssuerSet) -> list[FieldError]:
    return issuer_set_rules.validate(issuer_set.spec)


def _cluster_issuer_set(issuer_set: ClusterIssuerSet) -> list[FieldError]:
    return issuer_set_rules.validate_cluster(issuer_set.spec)


_RULES: Final[dict[tuple[str, str], Callable[[Any], list[FieldError]]]] = {
    ("Certificate", GROUP): certificate_rules.validate,
    ("CertificateRequest", GROUP): request_rules.validate,
    ("Issuer", GROUP): _issuer,
    ("ClusterIssuer", GROUP): _issuer,
    ("Delivery", SETS_GROUP): delivery_rules.validate,
    ("IssuerSet", SETS_GROUP): _issuer_set,
    ("ClusterIssuerSet", SETS_GROUP): _cluster_issuer_set,
}


def _of_certificate(certificate: Certificate, policy: OperatorPolicy | None) -> list[Violation]:
    return operator_policy.certificate_violations(certificate.spec, policy)


def _of_issuer(issuer: Issuer | ClusterIssuer, policy: OperatorPolicy | None) -> list[Violation]:
    return operator_policy.issuer_violations(issuer.spec, policy)


def _of_challenge(challenge: Challenge, policy: OperatorPolicy | None) -> list[Violation]:
    return operator_policy.solver_violations(challenge.spec.solver, "spec.solver", policy)


_VIOLATIONS: Final[dict[tuple[str, str], Callable[[Any, OperatorPolicy | None], list[Violation]]]] = {
    ("Certificate", GROUP): _of_certificate,
    ("Issuer", GROUP): _of_issuer,
    ("ClusterIssuer", GROUP): _of_issuer,
    ("Challenge", ACME_GROUP): _of_challenge,
}
_UPDATE_RULES: Final[dict[tuple[str, str], Callable[[Any, Any], list[FieldError]]]] = {
    ("CertificateRequest", GROUP): request_rules.validate_update,
    ("Order", ACME_GROUP): order_rules.validate_order_update,
    ("Challenge", ACME_GROUP): order_rules.validate_challenge_update,
}


def validate(
    kind_name: str,
    group: str,
    new: dict[str, Any],
    old: dict[str, Any] | None,
    policy: OperatorPolicy | None = None,
) -> list[FieldError]:
    """The errors in `new`; on an update (`old` is not None) also changes of immutable fields.

    `policy` is that of this server's operator; None: its controllers run elsewhere, and enforce theirs
    there.

    Other kinds have no rules here. An unchanged spec is not validated again: it was accepted once, and a
    stricter rule of a newer version must not prevent the controllers from writing its status.
    """
    at = (kind_name, group)
    kind = _KINDS.get(at)
    if kind is None:
        return []
    if "spec" not in new:
        return [required("spec", f"say what the {kind_name} shall be")]
    try:
        errors = _judge(at, kind, new, old)
        find = _VIOLATIONS.get(at)
        if find is None or (old is not None and old.get("spec") == new["spec"]):
            return errors
        before = find(from_dict(kind, old), policy) if old is not None and "spec" in old else ()
        return errors + operator_policy.new_violations(find(from_dict(kind, new), policy), before)
    except DecodeError as error:
        return [FieldError("spec", "FieldValueTypeInvalid", f"Invalid value: {error}")]


def warnings(kind_name: str, group: str, new: dict[str, Any], old: dict[str, Any] | None) -> list[str]:
    """Warnings about a valid `new`; none for an unchanged spec."""
    if (kind_name, group) != ("Certificate", GROUP) or (old is not None and old.get("spec") == new["spec"]):
        return []
    return certificate_warnings.warnings(from_dict(CERTIFICATES, new))


def _judge(
    at: tuple[str, str], kind: AnyKind, new: dict[str, Any], old: dict[str, Any] | None
) -> list[FieldError]:
    rule, update_rule = _RULES.get(at), _UPDATE_RULES.get(at)
    changed = old is None or old.get("spec") != new["spec"]
    if old is None or update_rule is None or "spec" not in old:
        return rule(from_dict(kind, new)) if rule and changed else []
    # The specs of these kinds are immutable, so there is no new one to validate.
    return update_rule(from_dict(kind, old), from_dict(kind, new))
