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
from functools import lru_cache
from math import isfinite
from operator import ge, gt, le, lt
from typing import Any

import msgspec

from certwright.kube.api.errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from certwright.kube.apiserver.base import schema_common as words
from certwright.kube.apiserver.base.json_values import encode_sorted
from certwright.kube.apiserver.base.schema_common import Path
from certwright.kube.apiserver.base.string_formats import check_for
from certwright.kube.apiserver.schemas import embedded
from certwright.kube.util import patterns
from certwright.kube.util.patterns import compile_pattern

Check = Callable[[Any, Path, list[FieldError]], None]
"""Appends the errors of the value."""

Schema = Mapping[str, Any]

_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
_JSON: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
_ALIKE = 256
"""The number of cached checks, shared by equal schemas: each is a dozen objects, and Python's garbage
collector visits every one of them."""
_MAX_SAFE = 2**53 - 1
"""Up to here every whole number is a float64 too; beyond it Kubernetes takes no float for an integer."""


# --- types ------------------------------------------------------------------------------------------------


def type_check(schema: Schema) -> Check | None:
    """The check of the type, or None where any type is valid."""
    types = tuple(filter(None, (schema.get("type"),)))
    if schema.get("x-kubernetes-int-or-string"):
        types = ("integer", "string")
    if not types:
        return None
    form = str(schema.get("format", ""))
    return _type_check(types, form if check_for(form) else "", nullable=bool(schema.get("nullable")))


@lru_cache(_ALIKE)
def _type_check(types: tuple[str, ...], form: str, *, nullable: bool) -> Check:
    allowed = frozenset(python for name in types for python in _PYTHON.get(name, ()))
    takes_whole_floats = "integer" in types

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        kind = type(value)
        if kind in allowed or (value is None and nullable):
            return
        if kind is float and takes_whole_floats and value.is_integer() and abs(value) <= _MAX_SAFE:
            return
        expected, actual = ",".join(types), _JSON[kind]
        # With a format, Kubernetes compares and names formats instead of types (strings and lists excepted).
        if form and value is not None and not isinstance(value, (str, list)):
            expected, actual = form, {int: "int64", float: "float64"}.get(kind, "")
        errors.append(words.wrong_type(path, expected, actual))

    return check


# --- values -----------------------------------------------------------------------------------------------


def enum_check(schema: Schema) -> list[Check]:
    """The check that the value is in the list."""
    allowed: list[Any] | None = schema.get("enum")
    if not allowed:
        return []
    texts = frozenset(item for item in allowed if isinstance(item, str))
    # True == 1 in Python, but not in JSON.
    others = frozenset(msgspec.json.encode(item) for item in allowed if not isinstance(item, str))
    shown = tuple(item if isinstance(item, str) else msgspec.json.encode(item).decode() for item in allowed)

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if type(value) is float and value.is_integer():
            value = int(value)
        if value not in texts if type(value) is str else msgspec.json.encode(value) not in others:
            errors.append(not_supported(words.field(path), words.go_number(value), shown))

    return [check]


def string_checks(schema: Schema) -> list[Check]:
    """Length, pattern and format."""
    low, high, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern", "")
    checks: list[Check] = [] if low is None and high is None else [_length_check(low, high)]
    if pattern:
        matches: list[Callable[[str], bool]] = []

        def check_pattern(value: str, path: Path, errors: list[FieldError]) -> None:
            if not matches:
                try:
                    matches.append(compile_pattern(pattern))
                except ValueError:
                    # It was not checked when the schema was accepted; nothing can match it.
                    matches.append(lambda _: False)
            if not matches[0](value):
                errors.append(words.wrong(path, value, f"should match '{pattern}'"))

        checks.append(check_pattern)
    if len(checks) > 1:
        length, matching = checks

        def check_first(value: str, path: Path, errors: list[FieldError]) -> None:
            # Only the first error of a text is reported, as in Kubernetes.
            before = len(errors)
            length(value, path, errors)
            if len(errors) == before:
                matching(value, path, errors)

        checks = [check_first]
    name = str(schema.get("format", ""))
    is_ok = check_for(name)
    if is_ok is not None:

        def check_format(value: str, path: Path, errors: list[FieldError]) -> None:
            if not is_ok(value):
                errors.append(words.wrong_format(path, value, name))

        checks.append(check_format)
    return checks


@lru_cache(_ALIKE)
def _length_check(low: int | None, high: int | None) -> Check:
    def check(value: str, path: Path, errors: list[FieldError]) -> None:
        if high is not None and len(value) > high:
            errors.append(too_long(words.field(path), high))
        elif low is not None and len(value) < low:
            errors.append(words.wrong(path, value, f"should be at least {low} chars long"))

    return check


_MAX_PATTERN = 32 * 1024
"""Characters. Longer patterns take tens of milliseconds to compile, in which no other Python code runs."""


def pattern_problem(pattern: str) -> str | None:
    """Why `pattern` is refused in a schema, or None."""
    if len(pattern) > _MAX_PATTERN:
        return f"error parsing regexp: it is longer than {_MAX_PATTERN} characters"
    try:
        patterns.check_pattern(pattern)
    except ValueError as error:
        return str(error)
    return None


def number_checks(schema: Schema) -> list[Check]:
    """Bounds and multiples. As in Kubernetes, a whole number is compared with the whole part of a bound."""
    checks: list[Check] = []
    if (factor := schema.get("multipleOf")) is not None:

        def check_factor(value: float, path: Path, errors: list[FieldError]) -> None:
            by = int(factor) if type(value) is int else factor
            if by <= 0:
                text = f"factor MultipleOf declared for {words.show_path(path)} must be positive: {by}"
                errors.append(invalid(words.field(path), by, text))
            elif not _divides(value, by):
                errors.append(words.wrong(path, value, f"should be a multiple of {_shown(by)}"))

        checks.append(check_factor)
    if schema.get("minimum") is not None:
        holds, text = (
            (gt, "greater than") if schema.get("exclusiveMinimum") else (ge, "greater than or equal to")
        )
        checks.append(_bound_check(schema["minimum"], holds, text))
    if schema.get("maximum") is not None:
        holds, text = (lt, "less than") if schema.get("exclusiveMaximum") else (le, "less than or equal to")
        checks.append(_bound_check(schema["maximum"], holds, text))
    return checks


def _bound_check(bound: float, holds: Callable[[float, float], bool], text: str) -> Check:
    integer_bound = int(bound)

    def check(value: float, path: Path, errors: list[FieldError]) -> None:
        limit = integer_bound if type(value) is int else bound
        if not holds(value, limit):
            errors.append(words.wrong(path, value, f"should be {text} {_shown(limit)}"))

    return check


def _shown(number: float) -> str:
    """Whole numbers without a point, as Kubernetes shows them."""
    return str(int(number)) if isfinite(number) and number == int(number) else str(number)


def _divides(value: float, factor: float) -> bool:
    if type(value) is int and type(factor) is int:
        return value % factor == 0
    # The way round in which Kubernetes rounds.
    quotient = 1 / factor * value if factor < 1 else value / factor
    if not abs(quotient) <= _MAX_SAFE:
        return False
    # A positive quotient may exceed a whole number by its rounding error (swag, IsFloat64AJSONInteger).
    excess = quotient - int(quotient)
    return excess == 0 or (quotient >= 1 and excess / (quotient + int(quotient)) < 1e-9)


# --- schemas ----------------------------------------------------------------------------------------------

Guard = Callable[[Check], Check]
"""Wraps the check of every place, down to scalars, but not within allOf, anyOf, oneOf and not."""


def compile_check(schema: Schema, guard: Guard | None = None) -> Check | None:
    """The check for values of `schema`, or None where it allows everything."""
    check = _compile(schema, guard)
    return guard(check) if guard is not None and check is not None else check


def _compile(schema: Schema, guard: Guard | None) -> Check | None:
    every, number = [*enum_check(schema), *_logic_checks(schema)], number_checks(schema)
    by_type = {
        str: [*string_checks(schema), *every],
        bool: every,
        int: [*number, *every],
        float: [*number, *every],
        list: [*_list_checks(schema, guard), *every],
        dict: [*_object_checks(schema, guard), *every],
        type(None): enum_check(schema),
    }
    steps = {kind: checks for kind, checks in by_type.items() if checks}
    kind = type_check(schema)
    if not steps:
        return kind

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if kind is not None:
            kind(value, path, errors)
        for step in steps.get(type(value), ()):
            step(value, path, errors)

    return check


def _count_checks(low: int | None, high: int | None, what: str) -> list[Check]:
    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if low is not None and len(value) < low:
            errors.append(words.wrong(path, len(value), f"should have at least {low} {what}"))
        if high is not None and len(value) > high:
            errors.append(too_many(words.field(path), len(value), high))

    return [] if low is None and high is None else [check]


# --- lists ------------------------------------------------------------------------------------------------


def _list_checks(schema: Schema, guard: Guard | None) -> list[Check]:
    checks: list[Check] = []
    item_schema = schema.get("items")
    if isinstance(item_schema, Mapping) and (items := compile_check(item_schema, guard)) is not None:

        def each_item(value: list[Any], path: Path, errors: list[FieldError]) -> None:
            for index, item in enumerate(value):
                items(item, (path, index), errors)

        checks.append(each_item)
    checks += _count_checks(schema.get("minItems"), schema.get("maxItems"), "items")
    if schema.get("uniqueItems"):
        checks.append(_unique_items)
    match schema.get("x-kubernetes-list-type"):
        case "set":
            checks.append(_as_set)
        case "map":
            checks.append(_as_map(tuple(schema.get("x-kubernetes-list-map-keys", ()))))
    return checks


def _unique_items(value: list[Any], path: Path, errors: list[FieldError]) -> None:
    if len({encode_sorted(item) for item in value}) < len(value):
        errors.append(words.wrong(path, "", "shouldn't contain duplicates"))


def _as_set(value: list[Any], path: Path, errors: list[FieldError]) -> None:
    if len(value) > 1:
        errors.extend(duplicate(words.field((path, index)), value[index]) for index in _repeated(value))


def _as_map(names: tuple[str, ...]) -> Check:
    def check(value: list[Any], path: Path, errors: list[FieldError]) -> None:
        for index, item in enumerate(value):
            if item is not None and type(item) is not dict:
                text = "must be an object for an array of list-type map"
                errors.append(invalid(words.field((path, index)), item, text))
                return
        if len(value) > 1:
            keys = [{name: item[name] for name in names if name in item} if item else {} for item in value]
            errors.extend(duplicate(words.field((path, index)), keys[index]) for index in _repeated(keys))

    return check


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


# --- objects ----------------------------------------------------------------------------------------------


def _object_checks(schema: Schema, guard: Guard | None) -> list[Check]:
    checks: list[Check] = []
    properties: Mapping[str, Schema] = schema.get("properties", {})
    extra, names = schema.get("additionalProperties"), tuple(schema.get("required") or ())
    if isinstance(extra, Mapping) and (child := compile_check(extra, guard)) is not None:

        def each_value(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
            for key, item in value.items():
                if key not in properties:
                    child(item, (path, key), errors)

        checks.append(each_value)
    elif extra is False:

        def no_others(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
            for key in value:
                if key not in properties:
                    text = f"{words.show_path((path, key))} in body is a forbidden property"
                    errors.append(invalid(words.field(path), key, text))

        checks.append(no_others)
    if properties:
        checks.append(_properties_check(properties, guard))
    if schema.get("x-kubernetes-embedded-resource"):
        checks.append(embedded.check)
    if names:

        def all_required(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
            errors.extend(required(words.field((path, name))) for name in names if name not in value)

        checks.append(all_required)
    return checks + _count_checks(schema.get("minProperties"), schema.get("maxProperties"), "properties")


def _properties_check(properties: Mapping[str, Schema], guard: Guard | None) -> Check:
    # Built on first use: few objects have all fields of a Pod's schema.
    children: dict[str, Check | None] = {}

    def check(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
        for key, item in value.items():
            child = children.get(key)
            if child is None and key in properties and key not in children:
                child = children[key] = compile_check(properties[key], guard)
            if child is not None:
                child(item, (path, key), errors)

    return check


# --- allOf, anyOf, oneOf, not -----------------------------------------------------------------------------

Combine = Callable[[list[list[FieldError]], Path], list[FieldError]]
"""The errors of a value, from the errors of each branch."""


def _logic_checks(schema: Schema) -> list[Check]:
    checks = []
    for word, combine in _COMBINE.items():
        if branches := schema.get(word):
            checks.append(_branches_check([branches] if word == "not" else branches, combine))
    return checks


def _branches_check(schemas: list[Schema], combine: Combine) -> Check:
    branches = [compile_check(schema) for schema in schemas]

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        results: list[list[FieldError]] = []
        for branch in branches:
            results.append([])
            if branch is not None:
                branch(value, path, results[-1])
        errors.extend(combine(results, path))

    return check


def _shortest(results: list[list[FieldError]]) -> list[FieldError]:
    # Kubernetes shows the branch with the best match.
    return min(results, key=len)


def _any_of(results: list[list[FieldError]], path: Path) -> list[FieldError]:
    if not all(results):
        return []
    return [words.unmet(path, "must validate at least one schema (anyOf)"), *_shortest(results)]


def _one_of(results: list[list[FieldError]], path: Path) -> list[FieldError]:
    valid = sum(1 for result in results if not result)
    if valid == 1:
        return []
    detail = f"Found {valid} valid alternatives" if valid else "Found none valid"
    unmet = words.unmet(path, f"must validate one and only one schema (oneOf). {detail}")
    return [unmet] if valid else [unmet, *_shortest(results)]


def _all_of(results: list[list[FieldError]], path: Path) -> list[FieldError]:
    if not any(results):
        return []
    none = ". None validated" if all(results) else ""
    unmet = words.unmet(path, f"must validate all the schemas (allOf){none}")
    return [*(error for result in results for error in result), unmet]


def _none_of(results: list[list[FieldError]], path: Path) -> list[FieldError]:
    return [] if results[0] else [words.unmet(path, "must not validate the schema (not)")]


_COMBINE: dict[str, Combine] = {"anyOf": _any_of, "oneOf": _one_of, "allOf": _all_of, "not": _none_of}
