"""Validation of the defaults in a structural schema against the schema.

Source: apiextensions-apiserver `pkg/apiserver/schema/defaulting/validation.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from certwright.kube.api.errors import MAX_CAUSES, FieldError, invalid
from certwright.kube.apiserver.base.json_values import same
from certwright.kube.apiserver.base.schema_common import EMBEDDED
from certwright.kube.apiserver.schemas.check import compile_check
from certwright.kube.apiserver.schemas.embedded import Malformed
from certwright.kube.apiserver.schemas.walk import compile_walk

Schema = Mapping[str, Any]


def default_errors(path: str, schema: Schema, *, root: bool = True) -> list[FieldError]:
    """The errors of a schema's default and of those below it. `root`: of a whole object."""
    errors = []
    if root:
        schema = {**schema, EMBEDDED: True}
    if schema.get("default") is not None:
        errors += _own_default_errors(f"{path}.default", schema)
    # Not in additionalProperties: their meaning there depends on the keys.
    if isinstance(schema.get("items"), Mapping):
        errors += default_errors(f"{path}.items", schema["items"], root=False)
    for key, prop in (schema.get("properties") or {}).items():
        errors += default_errors(f"{path}.properties[{key}]", prop, root=False)
    return errors


def _own_default_errors(path: str, schema: Schema) -> list[FieldError]:
    given = schema["default"]
    # A copy, because the walk prunes.
    value, unknown, errors = deepcopy(given), list[str](), list[FieldError]()
    holder: list[Any] = [value]
    try:
        compile_walk({"type": "array", "items": schema}, defaults=False)(holder, None, unknown)
    except Malformed as error:
        field, _, detail = str(error).partition(": ")
        return [FieldError(path + field.removeprefix("[0]"), "FieldValueInvalid", detail)]
    if unknown and not same(value, given):
        errors.append(invalid(path, given, "must not have unknown fields"))
    if (check := compile_check(schema)) is not None:
        value_errors: list[FieldError] = []
        check(given, None, value_errors)
        errors += [
            FieldError(_below(path, error.field), error.reason, error.detail)
            for error in value_errors[:MAX_CAUSES]
            # As in Kubernetes, a set or map in a default may repeat items; each object then has an error.
            if error.reason != "FieldValueDuplicate"
        ]
    return errors


def _below(path: str, field: str) -> str:
    return path if field == "<nil>" else f"{path}{'' if field.startswith('[') else '.'}{field}"
