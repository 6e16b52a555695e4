"""Entry point of validation, which an API server calls before it accepts a write; rules of the smaller kinds.

It takes objects as dicts that match the kind's schema, because that is what a server has. Signing requests
are parsed by the signer: this package does not depend on cryptography.

Source: cert-manager `internal/apis/certmanager/validation/certificaterequest.go`,
`internal/apis/acme/validation/{order,challenge}.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import structs

from certwright.kube.api.codec import DecodeError, from_dict
from certwright.kube.api.conditions import find
from certwright.kube.api.errors import FieldError, forbidden, invalid, required
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import Condition
from certwright.resources import (
    certificate_rules,
    certificate_warnings,
    checks,
    delivery,
    issuer_rules,
)
from certwright.resources.acme import ACMEAuthorization, Challenge, Order
from certwright.resources.crd_rules import CLUSTER_ONLY, EITHER_KIND, NO_SETS, OURS_ONLY
from certwright.resources.issuer import MOST_MEMBERS, IssuerSetSpec
from certwright.resources.names import ACME_GROUP, GROUP, SETS_GROUP
from certwright.resources.operator_policy import (
    OperatorPolicy,
    Violation,
    certificate_violations,
    issuer_violations,
    new_violations,
    solver_violations,
)
from certwright.resources.reasons import APPROVED, DENIED
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATES, OUR_KINDS

_FIXED_PREFIXES: Final = (f"{GROUP}/", f"{ACME_GROUP}/")
_ONCE_SET: Final = "field is immutable once set"


def validate_request(request: CertificateRequest) -> list[FieldError]:
    """All errors in the request on its own."""
    spec = request.spec
    errors = checks.check_issuer_ref(spec.issuer_ref, "spec.issuerRef")
    errors += checks.check_duration(spec.duration, "spec.duration")
    if not spec.request:
        errors.append(
            required("spec.request", "must be specified; give the signing request as PEM, base64-encoded")
        )
    errors += checks.check_usages(spec.usages, "spec.usages")
    return errors + _decision(request.status.conditions)


def validate_request_update(old: CertificateRequest, new: CertificateRequest) -> list[FieldError]:
    """Immutable fields that differ between `old` and `new`."""
    errors: list[FieldError] = []
    if new.spec != old.spec:
        errors.append(forbidden("spec", "cannot change spec after creation; create another request instead"))
    before, after = old.metadata.annotations, new.metadata.annotations
    for key in sorted(before.keys() | after.keys()):
        if key.startswith(_FIXED_PREFIXES) and before.get(key) != after.get(key):
            detail = "cannot change cert-manager annotation after creation"
            errors.append(forbidden(f"metadata.annotations.{key}", detail))
    errors += _decision(new.status.conditions)
    for kind in (APPROVED, DENIED):
        decision = find(old.status.conditions, kind)
        if decision is not None and find(new.status.conditions, kind) != decision:
            errors.append(forbidden("status.conditions", f"'{kind}' condition may not be modified once set"))
    return errors


def _decision(conditions: tuple[Condition, ...]) -> list[FieldError]:
    decisions = [condition for condition in conditions if condition.type in (APPROVED, DENIED)]
    path = "status.conditions"
    errors = [
        invalid(
            f"{path}.{condition.type}",
            condition.status,
            f'"{condition.type}" condition may only be set to True',
        )
        for condition in decisions
        if condition.status != "True"
    ]
    if len({condition.type for condition in decisions}) > 1:
        errors.append(forbidden(path, "both 'Denied' and 'Approved' conditions cannot coexist"))
    return errors


def validate_order_update(old: Order, new: Order) -> list[FieldError]:
    """The spec is immutable, and so is what the server has set. cert-manager protects only the signing
    request; a change of the rest would do nothing, and is refused here."""
    errors: list[FieldError] = []
    if old.spec.request != new.spec.request:
        errors.append(forbidden("spec.request", _ONCE_SET))
    elif old.spec != new.spec:
        errors.append(forbidden("spec", "order spec is immutable after creation"))
    before, after = old.status, new.status
    for path, known, value in (
        ("status.url", before.url, after.url),
        ("status.finalizeURL", before.finalize_url, after.finalize_url),
        ("status.certificate", before.certificate, after.certificate),
    ):
        if known and known != value:
            errors.append(forbidden(path, _ONCE_SET))
    path = "status.authorizations"
    if not before.authorizations:
        return errors
    if len(before.authorizations) != len(after.authorizations):
        return [*errors, forbidden(path, _ONCE_SET)]
    # The URLs are known first; the rest of each authorization is set once, when it is fetched.
    for number, (was, now) in enumerate(zip(before.authorizations, after.authorizations, strict=True)):
        values = zip(structs.astuple(was), structs.astuple(now), strict=True)
        for name, (known, value) in zip(ACMEAuthorization.__struct_encode_fields__, values, strict=True):
            if known not in ("", None, ()) and known != value:
                errors.append(forbidden(f"{path}[{number}].{name}", _ONCE_SET))
    return errors


def validate_challenge_update(old: Challenge, new: Challenge) -> list[FieldError]:
    """The spec is immutable."""
    return [forbidden("spec", "challenge spec is immutable after creation")] if old.spec != new.spec else []


def validate_issuer_set(spec: IssuerSetSpec) -> list[FieldError]:
    """All errors in the spec of an IssuerSet; empty if it is valid."""
    path = "spec.issuers"
    if not spec.issuers:
        return [required(path, "name at least one Issuer or ClusterIssuer")]
    if len(spec.issuers) > MOST_MEMBERS:
        return [forbidden(path, f"at most {MOST_MEMBERS} members")]
    errors: list[FieldError] = []
    for number, member in enumerate(spec.issuers):
        at = f"{path}[{number}]"
        if member.group == SETS_GROUP:
            errors.append(invalid(f"{at}.kind", member.kind, NO_SETS))
        elif not member.is_of_our_group:
            errors.append(invalid(f"{at}.group", member.group, OURS_ONLY))
        elif not member.is_ours:
            errors.append(invalid(f"{at}.kind", member.kind, EITHER_KIND))
        else:
            errors += checks.check_object_name(member.name, f"{at}.name", "the issuer")
        if any(member.same_issuer(other) for other in spec.issuers[:number]):
            errors.append(forbidden(at, "each member is named once"))
    return errors


def validate_cluster_issuer_set(spec: IssuerSetSpec) -> list[FieldError]:
    """As `validate`, for a ClusterIssuerSet."""
    errors = validate_issuer_set(spec)
    for number, member in enumerate(spec.issuers):
        if member.is_ours and member.kind_or_default != "ClusterIssuer":
            errors.append(invalid(f"spec.issuers[{number}].kind", member.kind_or_default, CLUSTER_ONLY))
    return errors


_KINDS: Final[dict[tuple[str, str], AnyKind]] = {(kind.kind, kind.group): kind for kind in OUR_KINDS}


_RULES: Final[dict[tuple[str, str], Callable[[Any], list[FieldError]]]] = {
    ("Certificate", GROUP): certificate_rules.validate,
    ("CertificateRequest", GROUP): validate_request,
    ("Issuer", GROUP): lambda issuer: issuer_rules.validate(issuer.spec),
    ("ClusterIssuer", GROUP): lambda issuer: issuer_rules.validate(issuer.spec),
    ("Delivery", SETS_GROUP): delivery.validate_delivery,
    ("IssuerSet", SETS_GROUP): lambda issuer_set: validate_issuer_set(issuer_set.spec),
    ("ClusterIssuerSet", SETS_GROUP): lambda issuer_set: validate_cluster_issuer_set(issuer_set.spec),
}
_UPDATE_RULES: Final[dict[tuple[str, str], Callable[[Any, Any], list[FieldError]]]] = {
    ("CertificateRequest", GROUP): validate_request_update,
    ("Order", ACME_GROUP): validate_order_update,
    ("Challenge", ACME_GROUP): validate_challenge_update,
}
_VIOLATIONS: Final[dict[tuple[str, str], Callable[[Any, OperatorPolicy | None], list[Violation]]]] = {
    ("Certificate", GROUP): lambda certificate, policy: certificate_violations(certificate.spec, policy),
    ("Issuer", GROUP): lambda issuer, policy: issuer_violations(issuer.spec, policy),
    ("ClusterIssuer", GROUP): lambda issuer, policy: issuer_violations(issuer.spec, policy),
    ("Challenge", ACME_GROUP): lambda challenge, policy: solver_violations(
        challenge.spec.solver, "spec.solver", policy
    ),
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
        rule, update_rule = _RULES.get(at), _UPDATE_RULES.get(at)
        if old is not None and update_rule is not None and "spec" in old:
            # The specs of these kinds are immutable, so there is no new one to validate.
            errors = update_rule(from_dict(kind, old), from_dict(kind, new))
        elif rule is not None and (old is None or old.get("spec") != new["spec"]):
            errors = rule(from_dict(kind, new))
        else:
            errors = []
        violations = _VIOLATIONS.get(at)
        if violations is None or (old is not None and old.get("spec") == new["spec"]):
            return errors
        before = violations(from_dict(kind, old), policy) if old is not None and "spec" in old else ()
        return errors + new_violations(violations(from_dict(kind, new), policy), before)
    except DecodeError as error:
        return [FieldError("spec", "FieldValueTypeInvalid", f"Invalid value: {error}")]


def warnings(kind_name: str, group: str, new: dict[str, Any], old: dict[str, Any] | None) -> list[str]:
    """Warnings about a valid `new`; none for an unchanged spec."""
    if (kind_name, group) != ("Certificate", GROUP) or (old is not None and old.get("spec") == new["spec"]):
        return []
    return certificate_warnings.warnings(from_dict(CERTIFICATES, new))
