"""Validation of the versions of a CustomResourceDefinition, with Kubernetes' messages.

Kubernetes moves fields that all versions share to one place, and names that place in its errors:
`spec.validation.openAPIV3Schema` where every version has the same schema.

The size limits of schemas and printer columns are ours: a schema is compiled to functions, and Python's
garbage collector visits each of them at times, while all requests wait. Kubernetes has no such limit.

Source: Kubernetes API reference, CustomResourceDefinitionVersion v1; apiextensions-apiserver
`pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from certwright.kube.api.errors import FieldError, duplicate, invalid, required, too_many
from certwright.kube.apiserver.base import object_names as name_rules
from certwright.kube.apiserver.base import schema_common
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds.structural import structural_errors, subschemas
from certwright.kube.apiserver.crds.validations import rule_errors

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_OWN_SCHEMA = "`version.schema.openAPIV3Schema`"
_MAX_SELECTABLE = 8
_MAX_WARNING = 256
_Accepted = tuple[list[Json | None], frozenset[str]]
"""Schemas whose rules are all valid, and rules that are valid anywhere."""


def version_errors(spec: Json, old: Json | None, known: frozenset[str] = frozenset()) -> list[FieldError]:
    """The errors in the versions of `spec`; rules in `old` or `known` are not compiled."""
    versions: list[Json] = spec["versions"] or []
    # The fields that have the same value in all versions.
    fields = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
    shared = frozenset(
        field
        for field in fields
        if versions
        and all(version.get(field) and version[field] == versions[0].get(field) for version in versions)
    )
    errors, names = [], [version["name"] for version in versions]
    if len(set(names)) < len(names):
        errors.append(_about_all(spec["versions"], shared, "must contain unique version names"))
    if sum(version["storage"] for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        errors.append(_about_all(spec["versions"], shared, text))
    checked = [_schema(version) for version in (old or {}).get("versions") or ()]
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if problem := name_rules.dns_1035_label(version["name"]):
            errors.append(invalid(f"{path}.name", version["name"], problem))
            if index == 0 and version["name"]:
                errors.append(invalid("spec.version", version["name"], problem))
        errors += _warning_errors(f"{path}.deprecationWarning", version)
        own = {field: value for field, value in version.items() if field not in shared}
        errors += _part_errors(path, own, _schema(version), (checked, known), has_status=_has_status(version))
        if _schema(version) is None:
            errors.append(required(f"{path}.schema.openAPIV3Schema"))
    if versions:
        common = {field: versions[0][field] for field in shared}
        has_status = any(map(_has_status, versions))
        errors += _part_errors("spec", common, _schema(versions[0]), (checked, known), has_status=has_status)
    return errors


def _schema(version: Json) -> Json | None:
    schema: Json | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def _about_all(versions: list[Json] | None, shared: frozenset[str], text: str) -> FieldError:
    # Kubernetes prints its internal form of the versions.
    shown = versions and [
        {
            "Name": version["name"],
            "Served": version["served"],
            "Storage": version["storage"],
            "Deprecated": version.get("deprecated", False),
            "DeprecationWarning": version.get("deprecationWarning"),
            **{
                field[0].upper() + field[1:]: None if field in shared else version.get(field)
                for field in ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
            },
        }
        for version in versions
    ]
    return FieldError(
        "spec.versions", "FieldValueInvalid", f"Invalid value: {msgspec.json.encode(shown).decode()}: {text}"
    )


def _warning_errors(path: str, version: Json) -> list[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    texts = [] if version.get("deprecated") else ["can only be set for deprecated versions"]
    if version.get("deprecated"):
        if len(warning.encode()) > _MAX_WARNING:
            texts.append(f"must be <= {_MAX_WARNING} characters long")
        if not warning:
            texts.append("must not be an empty string")
        if (at := next((i for i, mark in enumerate(warning) if not mark.isprintable()), None)) is not None:
            text = "must only contain printable UTF-8 characters; non-printable character found at index "
            texts.append(f"{text}{len(warning[:at].encode())}")
    return [invalid(path, warning, text) for text in texts]


# --- what a version and all versions together may have ------------------------------------------------------


def _has_status(version: Json) -> bool:
    return (version.get("subresources") or {}).get("status") is not None


def _part_errors(
    path: str, part: Mapping[str, Any], schema: Json | None, accepted: _Accepted, *, has_status: bool
) -> list[FieldError]:
    errors = []
    if "schema" in part and schema is not None:
        name = "validation" if path == "spec" else "schema"
        errors += _schema_errors(f"{path}.{name}.openAPIV3Schema", schema, accepted, has_status=has_status)
    if scale := (part.get("subresources") or {}).get("scale"):
        errors += _scale_errors(f"{path}.subresources.scale", scale)
    where, columns = f"{path}.additionalPrinterColumns", part.get("additionalPrinterColumns") or ()
    if len(columns) > MAX_COLUMNS:
        errors.append(too_many(where, len(columns), MAX_COLUMNS))
    else:
        errors += [
            error for n, column in enumerate(columns) for error in _column_errors(f"{where}[{n}]", column)
        ]
    where, fields = f"{path}.selectableFields", part.get("selectableFields") or ()
    if fields and ("schema" not in part or schema is None):
        # Kubernetes looks for the schema beside the fields, and reports this with another message.
        text = "validations.schema is included" if path == "spec" else f"{_OWN_SCHEMA} is not included"
        return [*errors, invalid(where, "", f"may only be set when {text}")]
    return errors + _selectable_errors(where, fields, schema or {})


def _schema_errors(path: str, schema: Json, accepted: _Accepted, *, has_status: bool) -> list[FieldError]:
    schemas, known = accepted
    errors = size_errors(path, schema) or structural_errors(path, schema, has_status=has_status)
    # Rules that were accepted before need no second check.
    if not errors and schema not in schemas:
        errors = rule_errors(path, schema, known)
    return errors


def _scale_errors(path: str, scale: Json) -> list[FieldError]:
    errors = []
    for field, part in (("specReplicasPath", "spec"), ("statusReplicasPath", "status")):
        value = scale.get(field) or ""
        if not value:
            errors.append(required(f"{path}.{field}"))
        elif problem := _simple_path_problem(value):
            errors.append(invalid(f"{path}.{field}", value, problem))
        elif not value.startswith(f".{part}."):
            errors.append(invalid(f"{path}.{field}", value, f"should be a json path under .{part}"))
    if value := scale.get("labelSelectorPath"):
        where = f"{path}.labelSelectorPath"
        if problem := _simple_path_problem(value):
            errors.append(invalid(where, value, problem))
        elif not value.startswith((".spec.", ".status.")):
            errors.append(invalid(where, value, "should be a json path under either .spec or .status"))
    return errors


def _simple_path_problem(path: str) -> str:
    return "" if path.startswith(".") else "must be a simple json path starting with ."


def _column_errors(path: str, column: Json) -> list[FieldError]:
    errors = []
    types, formats = ",".join(_COLUMN_TYPES), ",".join(_COLUMN_FORMATS)
    if not column["name"]:
        errors.append(required(f"{path}.name"))
    if not column["type"]:
        errors.append(required(f"{path}.type", f"must be one of {types}"))
    elif column["type"] not in _COLUMN_TYPES:
        errors.append(invalid(f"{path}.type", column["type"], f"must be one of {types}"))
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        errors.append(invalid(f"{path}.format", column["format"], f"must be one of {formats}"))
    where, value = f"{path}.JSONPath", column["jsonPath"]
    if not value:
        errors.append(required(where))
    elif problem := _simple_path_problem(value):
        errors.append(invalid(where, value, problem))
    return errors


def _selectable_errors(path: str, fields: Iterable[Json], schema: Mapping[str, Any]) -> list[FieldError]:
    errors, seen = [], set[str]()
    for index, field in enumerate(fields):
        where, value = f"{path}[{index}].jsonPath", field["jsonPath"]
        if not value:
            errors.append(required(where))
            continue
        try:
            shown, field_schema = schema_common.resolve(value, schema, brackets=False)
        except ValueError as error:
            errors.append(invalid(where, value, f"is an invalid path: {error}"))
            continue
        if shown.partition(".")[0] == "metadata":
            errors.append(invalid(where, value, "must not point to fields in metadata"))
        if field_schema.get("type") not in ("string", "boolean", "integer"):
            text = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings "
                "with formats are allowed."
            )
            errors.append(invalid(where, value, text))
        if shown in seen:
            errors.append(duplicate(where, value))
        seen.add(shown)
    if len(seen) > _MAX_SELECTABLE:
        errors.append(too_many(path, len(seen), _MAX_SELECTABLE))
    return errors


Schema = Mapping[str, Any]

MAX_PARTS = 20_000
"""Schemas in the schema of one version (fields, items, branches), and the names that they require. Schemas of
whole Pods have some 2,000."""
MAX_COLUMNS = 100
"""Printer columns of one version: each is computed for every row of a Table."""
_DEFAULT = 3  # weight: a field with a default is in every object, and all of its schema is used
_NAMES = ("required", "x-kubernetes-list-map-keys", "x-kubernetes-validations")


def size_errors(path: str, schema: Schema) -> list[FieldError]:
    """The errors of a schema with too many parts."""
    count, waiting = 0, [schema]
    while waiting:
        part = waiting.pop()
        count += 1 + sum(len(part.get(word) or ()) for word in _NAMES) + _DEFAULT * ("default" in part)
        waiting += [child for _, child in subschemas(part)]
    if count <= MAX_PARTS:
        return []
    detail = (
        f"Too many: {count}: must have at most {MAX_PARTS} fields, items, branches and required names; leave "
        "parts of it open with x-kubernetes-preserve-unknown-fields"
    )
    return [FieldError(path, "FieldValueTooMany", detail)]
