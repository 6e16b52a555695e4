"""What a CustomResourceDefinition must be like, in Kubernetes' words.

Source: Kubernetes API reference, CustomResourceDefinition v1; apiextensions-apiserver
`pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from certwright.apiserver import names as name_rules
from certwright.apiserver.crd_structural import structural_errors
from certwright.apiserver.definitions import Json
from certwright.apiserver.jsonpath import compile_path, simple_keys
from certwright.resources.errors import FieldError, duplicate, invalid, not_supported, required

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
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
    errors += _versions_errors(spec["versions"]) + _name_errors(spec["names"]) + _conversion_errors(spec)
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


def _conversion_errors(spec: Json) -> list[FieldError]:
    strategy = (spec.get("conversion") or {}).get("strategy", "")
    if strategy == "None":
        return []
    return [not_supported("spec.conversion.strategy", strategy, ("None",))]


# --- versions ---------------------------------------------------------------------------------------------


def _versions_errors(versions: list[Json]) -> list[FieldError]:
    errors = []
    for index, version in enumerate(versions):
        errors += _version_errors(f"spec.versions[{index}]", version)
    names = [version["name"] for version in versions]
    if len(set(names)) < len(names):
        errors.append(invalid("spec.versions", names, "must contain unique version names"))
    if sum(version["storage"] for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        errors.append(invalid("spec.versions", names, text))
    return errors


def _version_errors(path: str, version: Json) -> list[FieldError]:
    errors = []
    if problem := name_rules.dns_1035_label(version["name"]):
        errors.append(invalid(f"{path}.name", version["name"], problem))
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        errors.append(required(f"{path}.schema.openAPIV3Schema"))
    else:
        errors += structural_errors(f"{path}.schema.openAPIV3Schema", schema)
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        errors += _column_errors(f"{path}.additionalPrinterColumns[{index}]", column)
    return errors + _selectable_errors(path, version.get("selectableFields") or (), schema or {})


def _column_errors(path: str, column: Json) -> list[FieldError]:
    errors = []
    types, formats = ",".join(_COLUMN_TYPES), ",".join(_COLUMN_FORMATS)
    if not column["name"]:
        errors.append(required(f"{path}.name"))
    if column["type"] not in _COLUMN_TYPES:
        errors.append(invalid(f"{path}.type", column["type"], f"must be one of {types}"))
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        errors.append(invalid(f"{path}.format", column["format"], f"must be one of {formats}"))
    if not column["jsonPath"]:
        return [*errors, required(f"{path}.jsonPath")]
    try:
        compile_path(column["jsonPath"])
    except ValueError as error:
        errors.append(invalid(f"{path}.jsonPath", column["jsonPath"], str(error)))
    return errors


def _selectable_errors(path: str, fields: Iterable[Json], schema: Mapping[str, Any]) -> list[FieldError]:
    errors, seen = [], set[str]()
    for index, field in enumerate(fields):
        where, value = f"{path}.selectableFields[{index}].jsonPath", field["jsonPath"]
        if problem := _selectable_problem(value, schema):
            errors.append(invalid(where, value, problem))
        elif value in seen:
            errors.append(duplicate(where, value))
        seen.add(value)
    return errors


def _selectable_problem(path: str, schema: Mapping[str, Any]) -> str | None:
    try:
        keys = simple_keys(path)
    except ValueError as error:
        return f"is an invalid path: {error}"
    if keys[0] == "metadata":
        return "must not point to fields in metadata"
    for key in keys:
        properties = schema.get("properties", {})
        if key not in properties:
            return "is an invalid path: does not refer to a valid field"
        schema = properties[key]
    if schema.get("type") in ("string", "boolean", "integer"):
        return None
    return (
        "must point to a field of type string, boolean or integer. Enum string fields and strings with "
        "formats are allowed."
    )


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
