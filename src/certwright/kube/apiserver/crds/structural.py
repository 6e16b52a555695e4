"""Validation of schemas: whether objects can be pruned and defaulted by one, its keywords, and its defaults.

Kubernetes validates twice: the structural form of a schema, and the schema as written (`openapi_errors`). The
order is fixed: structural errors come first, and a schema with keywords that no structural schema can
have gets no structural validation.

Source: Kubernetes documentation, "Specifying a structural schema"; apiextensions-apiserver
`pkg/apiserver/schema/{convert,validation,complete}.go`, `pkg/apiserver/schema/defaulting/validation.go`,
`pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from certwright.kube.api.errors import MAX_CAUSES, FieldError, forbidden, invalid, not_supported, required
from certwright.kube.apiserver.base.json_values import same
from certwright.kube.apiserver.base.schema_common import EMBEDDED, META_FIELDS, PRESERVE
from certwright.kube.apiserver.schemas.check import compile_check, pattern_problem
from certwright.kube.apiserver.schemas.embedded import Malformed
from certwright.kube.apiserver.schemas.walk import compile_walk

Schema = Mapping[str, Any]

INT_OR_STRING = "x-kubernetes-int-or-string"
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_EMPTY = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
_NOT_NESTED = {
    **dict.fromkeys(
        ("type", "title", "description", LIST_KEYS, "x-kubernetes-validations"),
        "must be empty to be structural",
    ),
    **dict.fromkeys(
        ("additionalProperties", "default", LIST_TYPE, MAP_TYPE), "must be undefined to be structural"
    ),
    **dict.fromkeys(("nullable", PRESERVE, EMBEDDED, INT_OR_STRING), "must be false to be structural"),
}
_INT_OR_STRING_FORM = [{"type": "integer"}, {"type": "string"}]
_LOGIC = ("allOf", "anyOf", "oneOf", "not")


def structural_errors(path: str, schema: Schema, *, has_status: bool = False) -> list[FieldError]:
    """The errors that reject the schema of a version. `has_status`: it has a status subresource."""
    errors = []
    if has_status and schema.get("type", "") not in ("", "object"):
        text = f'only "object" is allowed as the type at the root of the schema {_IF}'
        errors.append(invalid(f"{path}.type", schema["type"], text))
    elif has_status and not schema.keys() <= _ROOT_KEYWORDS:
        text = f"only [{_WITH_STATUS}] fields are allowed at the root of the schema {_IF}"
        errors.append(invalid(path, schema, text))
    if schema.get("nullable"):
        errors.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    unsupported = _unsupported(schema)
    if not unsupported:
        violations = sorted(_node(path, schema, "root") + _incomplete(schema, schema, path, path), key=str)
        errors += violations or default_errors(path, schema)
    errors += openapi_errors(path, schema)
    if unsupported and not errors:
        errors.append(invalid(path, "", unsupported))
    return errors


_WITH_STATUS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength "
    "Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example "
    "XPreserveUnknownFields XValidations"
)
_IF = "if the status subresource is enabled"
_ROOT_KEYWORDS = frozenset(
    {
        *(word[0].lower() + word[1:] for word in _WITH_STATUS.split() if not word.startswith("X")),
        PRESERVE,
        "x-kubernetes-validations",
    }
)


def _unsupported(schema: Schema) -> str:
    """Why a schema has no structural form; empty if it has."""
    for word in (*_UNSUPPORTED, "$schema"):
        if schema.get(word):
            return f"OpenAPIV3Schema '{'schema' if word == '$schema' else word}' is not supported"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if schema.get(PRESERVE) is False:
        return f"internal error: '{PRESERVE}' must be true or undefined"
    return next((problem for _, child in subschemas(schema) if (problem := _unsupported(child))), "")


def subschemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The child schemas, each with its relative path, in the order in which Kubernetes checks keywords."""
    if isinstance(extra := schema.get("additionalProperties"), Mapping):
        yield "additionalProperties", extra
    for key, prop in (schema.get("properties") or {}).items():
        yield f"properties[{key}]", prop
    if isinstance(schema.get("not"), Mapping):
        yield "not", schema["not"]
    for word in ("allOf", "oneOf", "anyOf"):
        for index, branch in enumerate(schema.get(word) or ()):
            yield f"{word}[{index}]", branch
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield "items", items
    elif isinstance(items, list):
        for index, item in enumerate(items):
            yield f"items[{index}]", item


# --- invariants -------------------------------------------------------------------------------------------


def _node(path: str, schema: Schema, level: str) -> list[FieldError]:
    errors = []
    if schema.get("type") == "array" and "items" not in schema:
        errors.append(required(f"{path}.items", "must be specified"))
    if "items" in schema:
        errors += _node(f"{path}.items", schema["items"], "item")
    for key, prop in (schema.get("properties") or {}).items():
        errors += _node(f"{path}.properties[{key}]", prop, "field")
    if (extra := schema.get("additionalProperties")) is not None:
        where = f"{path}.additionalProperties"
        if level == "root":
            errors.append(forbidden(where, "must not be used at the root"))
        if schema.get(EMBEDDED):
            errors.append(forbidden(where, "must not be used if x-kubernetes-embedded-resource is set"))
        if isinstance(extra, Mapping):
            errors += _node(where, extra, "field")
    if schema.get(INT_OR_STRING):
        text = "must be false if x-kubernetes-int-or-string is true"
        errors += [invalid(f"{path}.{word}", True, text) for word in (PRESERVE, EMBEDDED) if schema.get(word)]
    errors += _logic_errors(path, schema) + _type_errors(path, schema, level)
    if level == "root" or schema.get(EMBEDDED):
        properties = schema.get("properties") or {}
        for key, kind in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            if key in properties and (actual := properties[key].get("type", "")) != kind:
                errors.append(invalid(f"{path}.properties[{key}].type", actual, f"must be {kind}"))
    if level == "root" and "metadata" in (schema.get("properties") or {}):
        errors += _metadata_errors(f"{path}.properties[metadata]", schema["properties"]["metadata"])
    if schema.get(EMBEDDED) and not schema.get(PRESERVE) and not schema.get("properties"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields"
        )
        errors.append(required(f"{path}.properties", text))
    return errors


def _type_errors(path: str, schema: Schema, level: str) -> list[FieldError]:
    kind, where, errors = schema.get("type", ""), f"{path}.type", []
    if schema.get(EMBEDDED) and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        errors.append(invalid(where, kind, text) if kind else required(where, text))
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        errors.append(required(where, _EMPTY[level]))
    if level == "root" and kind and kind != "object":
        errors.append(invalid(where, kind, "must be object at the root"))
    return errors


def _metadata_errors(path: str, schema: Schema) -> list[FieldError]:
    """Of an object's metadata only the two names can be restricted."""
    left = {word: value for word, value in schema.items() if word not in ("type", "default")}
    if left.get("properties") and left["properties"].keys() <= {"name", "generateName"}:
        del left["properties"]
    if not left:
        return []
    text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
    return [forbidden(path, text)]


# --- allOf, anyOf, oneOf, not -----------------------------------------------------------------------------


def _branches(schema: Schema) -> list[tuple[str, Schema]]:
    return [(step, child) for step, child in subschemas(schema) if step.partition("[")[0] in _LOGIC]


def _logic_errors(path: str, schema: Schema) -> list[FieldError]:
    errors = _pattern_errors(path, schema)
    usual = schema.get("anyOf") == _INT_OR_STRING_FORM
    for step, branch in _branches(schema):
        # The form of an int-or-string may be in the first part of an allOf, too.
        first = step == "allOf[0]" and branch.get("anyOf") == _INT_OR_STRING_FORM
        if not (usual and step.startswith("anyOf")):
            errors += _nested(f"{path}.{step}", branch, skipped="anyOf" if first else "")
    return errors


def _pattern_errors(path: str, schema: Schema) -> list[FieldError]:
    if not (pattern := schema.get("pattern")) or not (problem := pattern_problem(pattern)):
        return []
    return [invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {problem}")]


def _nested(path: str, schema: Schema, *, skipped: str = "") -> list[FieldError]:
    """`skipped`: `anyOf`, where it is the form of an int-or-string."""
    errors = _pattern_errors(path, schema)
    for step, child in subschemas(schema):
        if step.partition("[")[0] not in (skipped, "additionalProperties"):
            errors += _nested(f"{path}.{step}", child)
    errors += [
        forbidden(f"{path}.{word}", text)
        for word, text in _NOT_NESTED.items()
        if schema.get(word) or (word in ("default", "additionalProperties") and word in schema)
    ]
    if "metadata" in (schema.get("properties") or {}):
        text = "must not be specified in a nested context"
        errors.append(forbidden(f"{path}.properties[metadata]", text))
    return errors


# --- completeness -----------------------------------------------------------------------------------------


def _incomplete(values: Schema, schema: Schema | None, where: str, seen: str) -> list[FieldError]:
    """The fields that `values` restricts and the structural `schema` does not define."""
    errors = []
    for step, branch in _branches(values):
        errors += _incomplete_nested(branch, schema, where, f"{seen}.{step}")
    return errors


def _incomplete_nested(values: Schema, schema: Schema | None, where: str, seen: str) -> list[FieldError]:
    if schema is None:
        return [required(where, f"because it is defined in {seen}")]
    errors = _incomplete(values, schema, where, seen)
    if "items" in values:
        errors += _incomplete_nested(values["items"], schema.get("items"), f"{where}.items", f"{seen}.items")
    known = schema.get("properties") or {}
    for key, prop in (values.get("properties") or {}).items():
        step = f"properties[{key}]"
        errors += _incomplete_nested(prop, known.get(key), f"{where}.{step}", f"{seen}.{step}")
    return errors


# --- defaults ---------------------------------------------------------------------------------------------


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


# --- keywords of the schema as written --------------------------------------------------------------------

_IS_KEY = "this property is in x-kubernetes-list-map-keys, so it"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def openapi_errors(
    path: str, schema: Schema, *, root: bool = True, no_default: str = "", in_head: bool = False
) -> list[FieldError]:
    """The errors of the keywords in a schema, of a version's whole schema as a rule (`root`).

    `no_default`: why a default is forbidden here. `in_head`: within the metadata of an object.
    """
    errors = _keyword_errors(path, schema, no_default=no_default, in_head=in_head)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden(f"{path}.uniqueItems", text))
    extra = schema.get("additionalProperties")
    if schema.get("properties") and extra is not None and extra is not True:
        text = "additionalProperties and properties are mutual exclusive"
        errors.append(forbidden(f"{path}.additionalProperties", text))
    is_object = root or schema.get(EMBEDDED)
    head = {f"properties[{name}]": name for name in META_FIELDS} if is_object else {}
    for step, child in subschemas(schema):
        reason = f"in top-level {head[step]}" if root and step in head else no_default
        if in_head and step == "additionalProperties":
            reason = "inside additionalProperties applying to object metadata"
        errors += openapi_errors(
            f"{path}.{step}", child, root=False, no_default=reason, in_head=in_head or step in head
        )
    if schema.get(PRESERVE) is False:
        errors.append(invalid(f"{path}.{PRESERVE}", False, "must be true or undefined"))
    return errors + _map_errors(path, schema) + _list_errors(path, schema)


def _keyword_errors(path: str, schema: Schema, *, no_default: str, in_head: bool) -> list[FieldError]:
    errors, kind = [], schema.get("type", "")
    if kind and kind not in _TYPES:
        errors.append(not_supported(f"{path}.type", kind, _TYPES))
    if no_default and schema.get("default") is not None:
        errors.append(forbidden(f"{path}.default", f"must not be set {no_default}"))
    errors += [
        forbidden(f"{path}.{word}", f"{word} is not supported") for word in _UNSUPPORTED if word in schema
    ]
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        errors.append(forbidden(f"{path}.type", text))
    if isinstance(schema.get("items"), list):
        errors.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if in_head and schema.get(EMBEDDED):
        errors.append(forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta"))
    return errors


def _of_type(path: str, schema: Schema, kind: str, word: str) -> list[FieldError]:
    actual, text = schema.get("type", ""), f"must be {kind} if {word} is specified"
    if actual == kind:
        return []
    return [invalid(f"{path}.type", actual, text) if actual else required(f"{path}.type", text)]


def _map_errors(path: str, schema: Schema) -> list[FieldError]:
    kind = schema.get(MAP_TYPE)
    if kind is None:
        return []
    errors = _of_type(path, schema, "object", MAP_TYPE)
    if kind not in ("atomic", "granular"):
        errors.append(not_supported(f"{path}.{MAP_TYPE}", kind, ("atomic", "granular")))
    return errors


def _list_errors(path: str, schema: Schema) -> list[FieldError]:
    kind, keys, where = schema.get(LIST_TYPE), schema.get(LIST_KEYS) or [], f"{path}.{LIST_TYPE}"
    errors = []
    if kind is not None:
        errors += _of_type(path, schema, "array", LIST_TYPE) or _set_errors(path, schema)
        if kind not in ("atomic", "set", "map"):
            errors.append(not_supported(where, kind, ("atomic", "set", "map")))
    if keys and kind != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        errors.append(required(where, text) if kind is None else invalid(where, kind, text))
    if kind == "map":
        errors += _keyed_errors(path, schema, keys)
    return errors + _item_errors(path, schema, keys)


def _set_errors(path: str, schema: Schema) -> list[FieldError]:
    items = schema.get("items")
    if schema[LIST_TYPE] != "set" or not isinstance(items, Mapping):
        return []
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
        return [invalid(f"{path}.items.{LIST_TYPE}", items[LIST_TYPE], text)]
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        # Kubernetes shows the type of the list here.
        return [invalid(f"{path}.items.{MAP_TYPE}", items.get(LIST_TYPE), text)]
    return []


def _keyed_errors(path: str, schema: Schema, keys: list[str]) -> list[FieldError]:
    errors, where, items = [], f"{path}.{LIST_KEYS}", schema.get("items")
    if not keys:
        errors.append(required(where, "must not be empty if x-kubernetes-list-type is map"))
    if items is None:
        errors.append(required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map"))
    if not isinstance(items, Mapping):
        return errors
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        return [*errors, invalid(f"{path}.items.type", items.get("type", ""), text)]
    properties = items.get("properties") or {}
    unknown = invalid(where, keys, "entries must all be names of item properties")
    repeated = invalid(where, keys, "must not contain duplicate entries")
    seen = set[str]()
    for key in keys:
        if key not in properties:
            errors.append(unknown)
        elif properties[key].get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errors.append(invalid(f"{path}.items.properties[{key}].type", items["type"], text))
        if key in seen:
            errors.append(repeated)
        seen.add(key)
    return errors


def _item_errors(path: str, schema: Schema, keys: list[str]) -> list[FieldError]:
    """Items of a set or map must not be nullable, and keys of a map need a value or a default."""
    kind, items = schema.get(LIST_TYPE), schema.get("items")
    if kind not in ("set", "map") or not isinstance(items, Mapping):
        return []
    errors = []
    if items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {kind}"
        errors.append(forbidden(f"{path}.items.nullable", text))
    properties = (items.get("properties") or {}) if kind == "map" else {}
    always = frozenset(items.get("required") or ())
    for key in keys:
        if key not in properties:
            continue
        where = f"{path}.items.properties[{key}]"
        if key not in always and properties[key].get("default") is None:
            errors.append(
                required(f"{where}.default", f"{_IS_KEY} must have a default or be a required property")
            )
        if properties[key].get("nullable"):
            errors.append(forbidden(f"{where}.nullable", f"{_IS_KEY} cannot be nullable"))
    return errors
