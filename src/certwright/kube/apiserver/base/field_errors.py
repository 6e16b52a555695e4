"""Field errors of schema validation, with Kubernetes' messages and paths.

Source: kube-openapi `pkg/validation/errors`; apiextensions-apiserver `pkg/apiserver/validation`.
"""

from __future__ import annotations

from typing import Any

from certwright.kube.api.errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

Path = tuple[Any, str | int] | None
"""The location of a value: the path of its parent and the key or index in it; None at the root. Linked, so
that a walk without errors builds no strings."""


class MapKey(str):
    """The key of a map in a path, shown in brackets."""

    __slots__ = ()


def show_path(path: Path) -> str:
    """`spec.list[0].x`; empty at the root."""
    parts: list[str] = []
    while path is not None:
        path, step = path
        parts.append(f"[{step}]" if isinstance(step, (int, MapKey)) else f".{step}")
    return "".join(reversed(parts)).removeprefix(".")


def _field(path: Path) -> str:
    # Kubernetes prints its empty path like this.
    return show_path(path) or "<nil>"


def _go_number(value: object) -> object:
    """Go shows 3.0 as 3, and 1e19 as 1e+19."""
    return int(value) if type(value) is float and value.is_integer() and abs(value) < 2**53 else value


def wrong_type(path: Path, expected: str, actual: str) -> FieldError:
    """`spec.x: Invalid value: "string": spec.x in body must be of type array: "string"`."""
    name = show_path(path)
    error = invalid(name or "<nil>", actual, f'{name} in body must be of type {expected}: "{actual}"')
    return FieldError(error.field, "FieldValueTypeInvalid", error.detail)


def wrong(path: Path, value: object, rule: str) -> FieldError:
    """`spec.x: Invalid value: 7: spec.x in body should be less than or equal to 5`."""
    return invalid(_field(path), _go_number(value), f"{show_path(path)} in body {rule}")


def bad_factor(path: Path, factor: float) -> FieldError:
    """`spec.x: Invalid value: 0: factor MultipleOf declared for spec.x must be positive: 0`."""
    text = f"factor MultipleOf declared for {show_path(path)} must be positive: {factor}"
    return invalid(_field(path), factor, text)


def not_allowed(path: Path, key: str) -> FieldError:
    """`spec: Invalid value: "x": spec.x in body is a forbidden property`."""
    return invalid(_field(path), key, f"{show_path((path, key))} in body is a forbidden property")


def wrong_format(path: Path, value: str, name: str) -> FieldError:
    """`spec.x: Invalid value: "no": spec.x in body must be of type date-time: "no"`."""
    error = wrong(path, value, f'must be of type {name}: "{value}"')
    return FieldError(error.field, "FieldValueTypeInvalid", error.detail)


def missing(path: Path) -> FieldError:
    """`spec.x: Required value`."""
    return required(_field(path))


def not_in_enum(path: Path, value: object, allowed: tuple[str, ...]) -> FieldError:
    """`spec.x: Unsupported value: "c": supported values: "a", "b"`."""
    return not_supported(_field(path), _go_number(value), allowed)


def string_too_long(path: Path, limit: int) -> FieldError:
    """`spec.x: Too long: may not be more than 64 bytes`."""
    return too_long(_field(path), limit)


def too_many_items(path: Path, count: int, limit: int) -> FieldError:
    """`spec.x: Too many: 3: must have at most 2 items`."""
    return too_many(_field(path), count, limit)


def twice(path: Path, value: object) -> FieldError:
    """`spec.x[1]: Duplicate value: "a"`."""
    return duplicate(_field(path), value)


def unmet(path: Path, rule: str) -> FieldError:
    """`<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid`.

    Kubernetes reports these at the root.
    """
    return invalid("<nil>", "", f'"{show_path(path)}" {rule}')


def not_an_object(path: Path, value: object) -> FieldError:
    """An item of a list of type map that is no object."""
    return invalid(_field(path), value, "must be an object for an array of list-type map")
