"""Roles and their bindings: defaults and rules.

Source: Kubernetes documentation, "Using RBAC Authorization"; Kubernetes `pkg/apis/rbac/v1/defaults.go`,
`pkg/apis/rbac/validation`.
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError, invalid, not_supported, required
from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import Strategy

GROUP = "rbac.authorization.k8s.io"

# --- Role, ClusterRole ------------------------------------------------------------------------------------


def _rule_errors(rule: Json, path: str, *, namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    urls = rule.get("nonResourceURLs")
    if urls:
        where = f"{path}.nonResourceURLs"
        if namespaced:
            errors.append(invalid(where, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(where, urls, text))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


def _validate_role(new: Json, _: Json | None) -> list[FieldError]:
    namespaced = new["kind"] == "Role"
    errors: list[FieldError] = []
    aggregation = new.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errors.append(required("aggregationRule.clusterRoleSelectors", text))
    for index, rule in enumerate(new.get("rules") or ()):
        errors += _rule_errors(rule, f"rules[{index}]", namespaced=namespaced)
    return errors


ROLE = Strategy(validate=_validate_role)

# --- RoleBinding, ClusterRoleBinding ----------------------------------------------------------------------


def _default_binding(obj: Json) -> None:
    if not obj["roleRef"].get("apiGroup"):
        obj["roleRef"]["apiGroup"] = GROUP
    for subject in obj.get("subjects", ()):
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", GROUP)


def _subject_errors(subject: Json, path: str, *, namespaced: bool) -> list[FieldError]:
    kind, name, group = subject["kind"], subject["name"], subject.get("apiGroup", "")
    errors: list[FieldError] = [] if name else [required(f"{path}.name")]
    match kind:
        case "ServiceAccount":
            if name and (text := object_names.dns_subdomain(name)):
                errors.append(invalid(f"{path}.name", name, text))
            if group:
                errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
            if not subject.get("namespace") and not namespaced:
                errors.append(required(f"{path}.namespace"))
        case "User" | "Group":
            if group != GROUP:
                errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
        case _:
            errors.append(not_supported(f"{path}.kind", kind, ("Group", "ServiceAccount", "User")))
    return errors


def _validate_binding(new: Json, old: Json | None) -> list[FieldError]:
    namespaced = new["kind"] == "RoleBinding"
    reference = new["roleRef"]
    errors: list[FieldError] = []
    kinds = ("ClusterRole", "Role") if namespaced else ("ClusterRole",)
    if reference["apiGroup"] != GROUP:
        errors.append(not_supported("roleRef.apiGroup", reference["apiGroup"], (GROUP,)))
    if reference["kind"] not in kinds:
        errors.append(not_supported("roleRef.kind", reference["kind"], kinds))
    if not reference["name"]:
        errors.append(required("roleRef.name"))
    elif text := object_names.path_segment(reference["name"]):
        errors.append(invalid("roleRef.name", reference["name"], text))
    for index, subject in enumerate(new.get("subjects", ())):
        errors += _subject_errors(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and old["roleRef"] != new["roleRef"]:
        errors.append(invalid("roleRef", new["roleRef"], "cannot change roleRef"))
    return errors


BINDING = Strategy(defaults=_default_binding, validate=_validate_binding)
