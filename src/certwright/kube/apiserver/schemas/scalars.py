"""Checks of scalar values against a schema: type, enum, strings, numbers.

Source: kube-openapi `pkg/validation/validate` (type, values, formats).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isfinite
from typing import Any

import msgspec

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.base import schema_common as words
from certwright.kube.apiserver.base.schema_common import Path
from certwright.kube.apiserver.base.string_formats import check_for
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
