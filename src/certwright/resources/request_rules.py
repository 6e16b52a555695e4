"""Validation of a CertificateRequest, and its immutable fields.

The signing request itself is parsed by the signer: this package does not depend on cryptography.

Source: cert-manager `internal/apis/certmanager/validation/certificaterequest.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from certwright.kube.api.conditions import find
from certwright.kube.api.errors import FieldError, forbidden, invalid, not_supported, required
from certwright.kube.api.meta import Condition
from certwright.resources import checks
from certwright.resources.certificate import KEY_USAGES
from certwright.resources.names import ACME_GROUP, GROUP
from certwright.resources.reasons import APPROVED, DENIED
from certwright.resources.request import CertificateRequest

_FIXED_PREFIXES: Final = (f"{GROUP}/", f"{ACME_GROUP}/")


def validate(request: CertificateRequest) -> list[FieldError]:
    """All errors in the request on its own."""
    spec = request.spec
    errors = checks.check_issuer_ref(spec.issuer_ref, "spec.issuerRef")
    errors += checks.check_duration(spec.duration, "spec.duration")
    if not spec.request:
        errors.append(
            required("spec.request", "must be specified; give the signing request as PEM, base64-encoded")
        )
    errors += [
        not_supported(f"spec.usages[{number}]", usage, KEY_USAGES)
        for number, usage in enumerate(spec.usages)
        if usage not in KEY_USAGES
    ]
    return errors + _decision(request.status.conditions)


def validate_update(old: CertificateRequest, new: CertificateRequest) -> list[FieldError]:
    """Immutable fields that differ between `old` and `new`."""
    errors: list[FieldError] = []
    if new.spec != old.spec:
        errors.append(forbidden("spec", "cannot change spec after creation; create another request instead"))
    errors += _annotations(old.metadata.annotations, new.metadata.annotations)
    errors += _decision(new.status.conditions)
    for kind in (APPROVED, DENIED):
        before = find(old.status.conditions, kind)
        if before is not None and find(new.status.conditions, kind) != before:
            errors.append(forbidden("status.conditions", f"'{kind}' condition may not be modified once set"))
    return errors


def _annotations(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[FieldError]:
    changed = sorted(
        key
        for key in old.keys() | new.keys()
        if key.startswith(_FIXED_PREFIXES) and old.get(key) != new.get(key)
    )
    detail = "cannot change cert-manager annotation after creation"
    return [forbidden(f"metadata.annotations.{key}", detail) for key in changed]


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
