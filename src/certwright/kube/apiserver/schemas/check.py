"""Check a value against a structural schema, in Kubernetes' words.

A schema is compiled to nested closures once. A check goes on after the first error, as Kubernetes does: a
value of the wrong type is still compared with an enum.

Why no library for JSON Schema: its errors would have to be put into Kubernetes' words by a second set of
rules that must agree with it in every case.

Source: kube-openapi `pkg/validation/validate`; Kubernetes documentation, CustomResourceDefinitions,
"Validation".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.base import schema_common as words
from certwright.kube.apiserver.base.json_values import encode_sorted
from certwright.kube.apiserver.base.schema_common import Path
from certwright.kube.apiserver.schemas import embedded
from certwright.kube.apiserver.schemas.scalars import (
    Check,
    Schema,
    allowed_types,
    enum_check,
    number_checks,
    simple_type,
    string_checks,
    type_check,
)

Guard = Callable[[Check], Check]
"""Wraps the check of every place, down to scalars, but not within allOf, anyOf, oneOf and not."""
_Steps = dict[type, list[Check]]
"""The checks for values of a Python type."""


def compile_check(schema: Schema, guard: Guard | None = None) -> Check | None:
    """The check for values of `schema`, or None where it allows everything."""
    check = _compile(schema, guard)
    return guard(check) if guard is not None and check is not None else check


def _compile(schema: Schema, guard: Guard | None) -> Check | None:
    steps, kind = _steps(schema, guard), type_check(schema)
    if not steps:
        return kind
    return _steps_only(steps) if kind is None else _kind_and_steps(kind, allowed_types(schema), steps)


def _steps_only(steps: _Steps) -> Check:
    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        for step in steps.get(type(value), ()):
            step(value, path, errors)

    return check


def _kind_and_steps(kind: Check, usual: frozenset[type], steps: _Steps) -> Check:
    # The usual types are looked up here, which saves a call per value.
    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        value_type = type(value)
        if value_type not in usual:
            kind(value, path, errors)
        for step in steps.get(value_type, ()):
            step(value, path, errors)

    return check


def _steps(schema: Schema, guard: Guard | None) -> _Steps:
    every = [*enum_check(schema), *_logic_checks(schema)]
    number = number_checks(schema)
    steps = {
        str: [*string_checks(schema), *every],
        bool: every,
        int: [*number, *every],
        float: [*number, *every],
        list: [*_list_checks(schema, guard), *every],
        dict: [*_object_checks(schema, guard), *every],
        type(None): enum_check(schema),
    }
    return {kind: checks for kind, checks in steps.items() if checks}


# --- lists ------------------------------------------------------------------------------------------------


def _list_checks(schema: Schema, guard: Guard | None) -> list[Check]:
    checks: list[Check] = []
    items = compile_check(schema["items"], guard) if isinstance(schema.get("items"), Mapping) else None
    if items is not None:
        checks.append(_each_item(items, simple_type(schema["items"])))
    if schema.get("minItems") is not None or schema.get("maxItems") is not None:
        checks.append(_item_count(schema.get("minItems"), schema.get("maxItems")))
    if schema.get("uniqueItems"):
        checks.append(_unique_items)
    kind = schema.get("x-kubernetes-list-type")
    if kind == "set":
        checks.append(_as_set)
    elif kind == "map":
        checks.append(_as_map(tuple(schema.get("x-kubernetes-list-map-keys", ()))))
    return checks


def _each_item(items: Check, quick: type | None) -> Check:
    def check(value: list[Any], path: Path, errors: list[FieldError]) -> None:
        for index, item in enumerate(value):
            if type(item) is not quick:
                items(item, (path, index), errors)

    return check


def _item_count(low: int | None, high: int | None) -> Check:
    def check(value: list[Any], path: Path, errors: list[FieldError]) -> None:
        if low is not None and len(value) < low:
            errors.append(words.wrong(path, len(value), f"should have at least {low} items"))
        if high is not None and len(value) > high:
            errors.append(words.too_many_items(path, len(value), high))

    return check


def _unique_items(value: list[Any], path: Path, errors: list[FieldError]) -> None:
    if len({encode_sorted(item) for item in value}) < len(value):
        errors.append(words.wrong(path, "", "shouldn't contain duplicates"))


def _repeated(keys: list[Any]) -> list[int]:
    # Only the second of several equal ones is reported.
    seen: dict[bytes, int] = {}
    indices = []
    for index, key in enumerate(keys):
        encoded = encode_sorted(key)
        seen[encoded] = seen.get(encoded, 0) + 1
        if seen[encoded] == 2:
            indices.append(index)
    return indices


def _as_set(value: list[Any], path: Path, errors: list[FieldError]) -> None:
    if len(value) > 1:
        errors.extend(words.twice((path, index), value[index]) for index in _repeated(value))


def _as_map(names: tuple[str, ...]) -> Check:
    def check(value: list[Any], path: Path, errors: list[FieldError]) -> None:
        for index, item in enumerate(value):
            if item is not None and type(item) is not dict:
                errors.append(words.not_an_object((path, index), item))
                return
        if len(value) > 1:
            keys = [{name: item[name] for name in names if name in item} if item else {} for item in value]
            errors.extend(words.twice((path, index), keys[index]) for index in _repeated(keys))

    return check


# --- objects ----------------------------------------------------------------------------------------------


def _object_checks(schema: Schema, guard: Guard | None) -> list[Check]:
    checks: list[Check] = []
    properties = _compile_properties(schema.get("properties", {}), guard)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping) and (child := compile_check(extra, guard)) is not None:
        checks.append(_each_value(frozenset(schema.get("properties", ())), child, simple_type(extra)))
    elif extra is False:
        checks.append(_no_others(frozenset(schema.get("properties", ()))))
    if properties is not None:
        checks.append(properties)
    if schema.get("x-kubernetes-embedded-resource"):
        checks.append(embedded.check)
    if schema.get("required"):
        checks.append(_required(tuple(schema["required"])))
    if schema.get("minProperties") is not None or schema.get("maxProperties") is not None:
        checks.append(_property_count(schema.get("minProperties"), schema.get("maxProperties")))
    return checks


def _compile_properties(properties: Mapping[str, Schema], guard: Guard | None) -> Check | None:
    if not properties:
        return None
    quick = {key: simple for key, prop in properties.items() if (simple := simple_type(prop)) is not None}
    # Built on first use: few objects have all fields of a Pod's schema.
    children: dict[str, Check | None] = {}

    def check(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
        for key, item in value.items():
            if type(item) is not quick.get(key):
                child = children.get(key)
                if child is None and key in properties and key not in children:
                    child = children[key] = compile_check(properties[key], guard)
                if child is not None:
                    child(item, (path, key), errors)

    return check


def _each_value(named: frozenset[str], child: Check, quick: type | None) -> Check:
    def check(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
        for key, item in value.items():
            if type(item) is not quick and key not in named:
                child(item, (path, key), errors)

    return check


def _no_others(named: frozenset[str]) -> Check:
    def check(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
        errors.extend(words.not_allowed(path, key) for key in value if key not in named)

    return check


def _required(names: tuple[str, ...]) -> Check:
    def check(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
        for name in names:
            if name not in value:
                errors.append(words.missing((path, name)))

    return check


def _property_count(low: int | None, high: int | None) -> Check:
    def check(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
        if low is not None and len(value) < low:
            errors.append(words.wrong(path, len(value), f"should have at least {low} properties"))
        if high is not None and len(value) > high:
            errors.append(words.too_many_items(path, len(value), high))

    return check


# --- allOf, anyOf, oneOf, not -----------------------------------------------------------------------------


def _logic_checks(schema: Schema) -> list[Check]:
    checks: list[Check] = []
    if schema.get("anyOf"):
        checks.append(_any_of(_branches(schema["anyOf"])))
    if schema.get("oneOf"):
        checks.append(_one_of(_branches(schema["oneOf"])))
    if schema.get("allOf"):
        checks.append(_all_of(_branches(schema["allOf"])))
    if schema.get("not"):
        checks.append(_none_of(_branches([schema["not"]])[0]))
    return checks


Branch = Callable[[Any, Path], list[FieldError]]


def _branches(schemas: list[Schema]) -> list[Branch]:
    return [_branch(compile_check(schema)) for schema in schemas]


def _branch(check: Check | None) -> Branch:
    def run(value: Any, path: Path) -> list[FieldError]:
        errors: list[FieldError] = []
        if check is not None:
            check(value, path, errors)
        return errors

    return run


def _shortest(results: list[list[FieldError]]) -> list[FieldError]:
    # Kubernetes shows the branch with the best match.
    return min(results, key=lambda errors: len(errors))


def _any_of(branches: list[Branch]) -> Check:
    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        results = [branch(value, path) for branch in branches]
        if all(results):
            errors.append(words.unmet(path, "must validate at least one schema (anyOf)"))
            errors.extend(_shortest(results))

    return check


def _one_of(branches: list[Branch]) -> Check:
    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        results = [branch(value, path) for branch in branches]
        valid = sum(1 for result in results if not result)
        if valid != 1:
            detail = f"Found {valid} valid alternatives" if valid else "Found none valid"
            errors.append(words.unmet(path, f"must validate one and only one schema (oneOf). {detail}"))
            errors.extend([] if valid else _shortest(results))

    return check


def _all_of(branches: list[Branch]) -> Check:
    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        results = [branch(value, path) for branch in branches]
        if any(results):
            none = ". None validated" if all(results) else ""
            for result in results:
                errors.extend(result)
            errors.append(words.unmet(path, f"must validate all the schemas (allOf){none}"))

    return check


def _none_of(branch: Branch) -> Check:
    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if not branch(value, path):
            errors.append(words.unmet(path, "must not validate the schema (not)"))

    return check
