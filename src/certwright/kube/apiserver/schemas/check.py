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
from typing import Any

import msgspec

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.base import schema_common as words
from certwright.kube.apiserver.base.json_values import encode_sorted
from certwright.kube.apiserver.base.schema_common import Path
from certwright.kube.apiserver.base.string_formats import check_for
from certwright.kube.apiserver.schemas import embedded
from certwright.kube.util.patterns import check_pattern, compile_pattern

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
_UNCONSTRAINING = frozenset(
    {"type", "description", "title", "default", "example", "externalDocs", "x-kubernetes-map-type"}
)

_ALIKE = 256
"""The number of cached checks, shared by equal schemas: each is a dozen objects, and Python's garbage
collector visits every one of them."""


def simple_type(schema: Schema) -> type | None:
    """The Python type of values when that is the only constraint (strings, booleans), for a fast check."""
    if schema.keys() <= _UNCONSTRAINING and schema.get("type") in ("string", "boolean"):
        return _PYTHON[schema["type"]][0]
    return None


_MAX_SAFE = 2**53 - 1
"""Up to here every whole number is a float64 too; beyond it Kubernetes takes no float for an integer."""


# --- types ------------------------------------------------------------------------------------------------


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    kind = schema.get("type")
    return (kind,) if kind else ()


def allowed_types(schema: Schema) -> frozenset[type]:
    """The Python types of the values of `schema`; none where it has no type."""
    return _in_python(_types(schema))


@lru_cache(_ALIKE)
def _in_python(types: tuple[str, ...]) -> frozenset[type]:
    return frozenset(python for name in types for python in _PYTHON.get(name, ()))


def type_check(schema: Schema) -> Check | None:
    """The check of the type, or None where any type is valid."""
    types = _types(schema)
    if not types:
        return None
    form = str(schema.get("format", ""))
    return _type_check(types, form if check_for(form) else "", nullable=bool(schema.get("nullable")))


@lru_cache(_ALIKE)
def _type_check(types: tuple[str, ...], form: str, *, nullable: bool) -> Check:
    allowed, takes_whole_floats = _in_python(types), "integer" in types

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        kind = type(value)
        if kind in allowed or (value is None and nullable):
            return
        if kind is float and takes_whole_floats and value.is_integer() and abs(value) <= _MAX_SAFE:
            return
        errors.append(_type_error(path, value, types, form))

    return check


def _type_error(path: Path, value: object, types: tuple[str, ...], form: str) -> FieldError:
    # With a format, Kubernetes compares and names formats instead of types (strings and lists excepted).
    if form and value is not None and not isinstance(value, (str, list)):
        actual = {int: "int64", float: "float64"}.get(type(value), "")
        return words.wrong_type(path, form, actual)
    return words.wrong_type(path, ",".join(types), _JSON[type(value)])


# --- values -----------------------------------------------------------------------------------------------


def enum_check(schema: Schema) -> list[Check]:
    """The check that the value is one of those listed."""
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
            errors.append(words.not_in_enum(path, value, shown))

    return [check]


def string_checks(schema: Schema) -> list[Check]:
    """Length, pattern and format."""
    checks = _first_only([*_length_checks(schema), *_pattern_check(schema)])
    name = str(schema.get("format", ""))
    accepts = check_for(name)
    if accepts is not None:
        is_ok = accepts

        def check_format(value: str, path: Path, errors: list[FieldError]) -> None:
            if not is_ok(value):
                errors.append(words.wrong_format(path, value, name))

        checks.append(check_format)
    return checks


def _first_only(checks: list[Check]) -> list[Check]:
    """Only the first error of a text is reported, as in Kubernetes."""
    if len(checks) < 2:
        return checks

    def check(value: str, path: Path, errors: list[FieldError]) -> None:
        before = len(errors)
        for step in checks:
            step(value, path, errors)
            if len(errors) > before:
                return

    return [check]


def _length_checks(schema: Schema) -> list[Check]:
    low, high = schema.get("minLength"), schema.get("maxLength")
    return [] if low is None and high is None else [_length_check(low, high)]


@lru_cache(_ALIKE)
def _length_check(low: int | None, high: int | None) -> Check:
    def check(value: str, path: Path, errors: list[FieldError]) -> None:
        if high is not None and len(value) > high:
            errors.append(words.string_too_long(path, high))
        elif low is not None and len(value) < low:
            errors.append(words.wrong(path, value, f"should be at least {low} chars long"))

    return check


def _pattern_check(schema: Schema) -> list[Check]:
    pattern: str = schema.get("pattern", "")
    if not pattern:
        return []
    matches: list[Callable[[str], bool]] = []

    def check(value: str, path: Path, errors: list[FieldError]) -> None:
        if not matches:
            matches.append(_matcher(pattern))
        if not matches[0](value):
            errors.append(words.wrong(path, value, f"should match '{pattern}'"))

    return [check]


def _matcher(pattern: str) -> Callable[[str], bool]:
    try:
        return compile_pattern(pattern)
    except ValueError:
        # The pattern was not checked when the schema was accepted; nothing can match it.
        return lambda _: False


_MAX_PATTERN = 32 * 1024
"""Characters. Longer patterns take tens of milliseconds to compile, in which no other Python code runs."""


def pattern_problem(pattern: str) -> str | None:
    """Why `pattern` is refused in a schema, or None."""
    if len(pattern) > _MAX_PATTERN:
        return f"error parsing regexp: it is longer than {_MAX_PATTERN} characters"
    try:
        check_pattern(pattern)
    except ValueError as error:
        return str(error)
    return None


def number_checks(schema: Schema) -> list[Check]:
    """Bounds and multiples. As in Kubernetes, a whole number is compared with the whole part of a bound."""
    checks: list[Check] = []
    above, below = bool(schema.get("exclusiveMinimum")), bool(schema.get("exclusiveMaximum"))
    if schema.get("multipleOf") is not None:
        checks.append(_factor_check(schema["multipleOf"]))
    if schema.get("minimum") is not None:
        checks.append(_bound_check(schema["minimum"], _lower(exclusive=above)))
    if schema.get("maximum") is not None:
        checks.append(_bound_check(schema["maximum"], _upper(exclusive=below)))
    return checks


Compare = Callable[[float, float], bool]
_Rule = tuple[Compare, str]
"""Whether a number keeps within a bound, and the text about it, to be followed by the bound."""


def _bound_check(bound: float, rule: _Rule) -> Check:
    (holds, text), integer_bound = rule, int(bound)

    def check(value: float, path: Path, errors: list[FieldError]) -> None:
        limit = integer_bound if type(value) is int else bound
        if not holds(value, limit):
            errors.append(words.wrong(path, value, f"{text} {_shown(limit)}"))

    return check


def _factor_check(factor: float) -> Check:
    integer_factor = int(factor)

    def check(value: float, path: Path, errors: list[FieldError]) -> None:
        by = integer_factor if type(value) is int else factor
        if by <= 0:
            errors.append(words.bad_factor(path, by))
        elif not _divides(value, by):
            errors.append(words.wrong(path, value, f"should be a multiple of {_shown(by)}"))

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


def _upper(*, exclusive: bool) -> _Rule:
    if exclusive:
        return (lambda value, bound: value < bound), "should be less than"
    return (lambda value, bound: value <= bound), "should be less than or equal to"


def _lower(*, exclusive: bool) -> _Rule:
    if exclusive:
        return (lambda value, bound: value > bound), "should be greater than"
    return (lambda value, bound: value >= bound), "should be greater than or equal to"


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
