"""What a CustomResourceDefinition must be like, in Kubernetes' words.

Source: Kubernetes API reference, CustomResourceDefinition v1; apiextensions-apiserver
`pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from certwright.apiserver.crds.crd_versions import version_errors
from certwright.apiserver.definitions import Json
from certwright.apiserver.kinds.registration_kinds import client_errors
from certwright.apiserver.verbs import names as name_rules
from certwright.resources.errors import FieldError, forbidden, invalid, not_supported, required

_SCOPES = ("Cluster", "Namespaced")
_APPROVAL = "api-approved.kubernetes.io"


def validate(new: Json, old: Json | None) -> list[FieldError]:
    """What is wrong with a definition (whose fields have the right types and defaults)."""
    spec = new["spec"]
    wanted = f"{spec['names']['plural']}.{spec['group']}"
    name = new["metadata"].get("name", "")
    errors = []
    if name != wanted:
        errors.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    errors += _group_errors(spec["group"]) + _approval_errors(new) + _scope_errors(spec["scope"])
    errors += version_errors(spec, old["spec"] if old is not None else None)
    errors += _name_errors(spec["names"]) + _conversion_errors(spec)
    if spec.get("preserveUnknownFields"):
        text = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        errors.append(invalid("spec.preserveUnknownFields", True, text))
    return errors + (_update_errors(new, old) if old is not None else [])


def _group_errors(group: str) -> list[FieldError]:
    if not group:
        return [required("spec.group")]
    if problem := name_rules.dns_subdomain(group):
        return [invalid("spec.group", group, problem)]
    if "." not in group:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _approval_errors(crd: Json) -> list[FieldError]:
    group = crd["spec"]["group"]
    if not group.endswith((".k8s.io", ".kubernetes.io")) and group not in ("k8s.io", "kubernetes.io"):
        return []
    if (crd["metadata"].get("annotations") or {}).get(_APPROVAL):
        return []
    text = (
        f'protected groups must have approval annotation "{_APPROVAL}", '
        "see https://github.com/kubernetes/enhancements/pull/1111"
    )
    return [required(f"metadata.annotations[{_APPROVAL}]", text)]


def _scope_errors(scope: str) -> list[FieldError]:
    if not scope:
        return [required("spec.scope")]
    return [] if scope in _SCOPES else [not_supported("spec.scope", scope, _SCOPES)]


def _name_errors(names: Json) -> list[FieldError]:
    errors = []
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field, "")
        mixed = field in ("kind", "listKind")
        if not value:
            errors.append(required(f"spec.names.{field}"))
        elif problem := name_rules.dns_1035_label(value.lower() if mixed else value):
            prefix = "may have mixed case, but should otherwise match: " if mixed else ""
            errors.append(invalid(f"spec.names.{field}", value, prefix + problem))
    for field in ("shortNames", "categories"):
        for index, value in enumerate(names.get(field) or ()):
            if problem := name_rules.dns_1035_label(value):
                errors.append(invalid(f"spec.names.{field}[{index}]", value, problem))
    if names["kind"] == names.get("listKind"):
        errors.append(invalid("spec.names.listKind", names["kind"], "kind and listKind may not be the same"))
    return errors


# --- conversion -------------------------------------------------------------------------------------------

_STRATEGIES = ("None", "Webhook")
_REVIEW_VERSIONS = ("v1", "v1beta1")


def _conversion_errors(spec: Json) -> list[FieldError]:
    path, conversion = "spec.conversion", spec.get("conversion") or {}
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook")
    client, versions = (webhook or {}).get("clientConfig"), (webhook or {}).get("conversionReviewVersions")
    if strategy == "Webhook":
        text = "required when strategy is set to Webhook"
        where = f"{path}.webhookClientConfig"
        errors = client_errors(client, where) if client else [required(where, text)]
        return errors + _review_version_errors(f"{path}.conversionReviewVersions", versions or [])
    errors = []
    if not strategy:
        errors.append(required(f"{path}.strategy"))
    elif strategy not in _STRATEGIES:
        errors.append(not_supported(f"{path}.strategy", strategy, _STRATEGIES))
    text = "should not be set when strategy is not set to Webhook"
    if client:
        errors.append(forbidden(f"{path}.webhookClientConfig", text))
    if versions:
        errors.append(forbidden(f"{path}.conversionReviewVersions", text))
    return errors


def _review_version_errors(path: str, versions: list[str]) -> list[FieldError]:
    if not versions:
        return [required(path)]
    errors = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        elif problem := name_rules.dns_1035_label(version):
            errors.append(invalid(f"{path}[{index}]", version, problem))
    if not set(versions) & set(_REVIEW_VERSIONS):
        text = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        errors.append(invalid(path, versions, text))
    return errors


# --- updates ----------------------------------------------------------------------------------------------


def _update_errors(new: Json, old: Json) -> list[FieldError]:
    errors = []
    versions = [version["name"] for version in new["spec"]["versions"]]
    for index, name in enumerate((new.get("status") or {}).get("storedVersions") or ()):
        if name not in versions:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {name} and "
                f"removes {name} from status.storedVersions"
            )
            errors.append(invalid(f"status.storedVersions[{index}]", name, text))
    fields = (("spec.group", "group"), ("spec.scope", "scope"))
    for path, field in fields:
        if new["spec"][field] != old["spec"][field]:
            errors.append(invalid(path, new["spec"][field], "field is immutable"))
    for field in ("plural", "kind"):
        value = new["spec"]["names"][field]
        if value != old["spec"]["names"][field]:
            errors.append(invalid(f"spec.names.{field}", value, "field is immutable"))
    return errors
