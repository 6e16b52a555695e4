"""Structural schemas, as all their interpreters need them: keywords, field paths, errors, ratcheting.

Ratcheting: unchanged parts of an object stay valid when its schema becomes stricter.

Source: Kubernetes documentation, "Extend the Kubernetes API with CustomResourceDefinitions"; API reference,
ValidationRule v1 apiextensions (fieldPath), SelectableField v1; kube-openapi `pkg/validation/errors`;
apiextensions-apiserver `pkg/apiserver/validation`; KEP-4008 (CRD validation ratcheting); apiserver
`pkg/cel/common/equality.go`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from certwright.kube.api.errors import FieldError, invalid
from certwright.kube.apiserver.base.json_values import encode_sorted, same

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


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


def field(path: Path) -> str:
    """The path in an error; Kubernetes prints its empty path as `<nil>`."""
    return show_path(path) or "<nil>"


def go_number(value: object) -> object:
    """Go shows 3.0 as 3, and 1e19 as 1e+19."""
    return int(value) if type(value) is float and value.is_integer() and abs(value) < 2**53 else value


def wrong_type(path: Path, expected: str, actual: str) -> FieldError:
    """`spec.x: Invalid value: "string": spec.x in body must be of type array: "string"`."""
    name = show_path(path)
    error = invalid(name or "<nil>", actual, f'{name} in body must be of type {expected}: "{actual}"')
    return FieldError(error.field, "FieldValueTypeInvalid", error.detail)


def wrong(path: Path, value: object, rule: str) -> FieldError:
    """`spec.x: Invalid value: 7: spec.x in body should be less than or equal to 5`."""
    return invalid(field(path), go_number(value), f"{show_path(path)} in body {rule}")


def wrong_format(path: Path, value: str, name: str) -> FieldError:
    """`spec.x: Invalid value: "no": spec.x in body must be of type date-time: "no"`."""
    error = wrong(path, value, f'must be of type {name}: "{value}"')
    return FieldError(error.field, "FieldValueTypeInvalid", error.detail)


def unmet(path: Path, rule: str) -> FieldError:
    """`<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid`.

    Kubernetes reports these at the root.
    """
    return invalid("<nil>", "", f'"{show_path(path)}" {rule}')


Schema = Mapping[str, Any]

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def resolve(path: str, schema: Schema, *, brackets: bool = True) -> tuple[str, Schema]:
    """The path as error messages show it, and the schema of the field.

    Raises `ValueError` with the error in the path.
    """
    shown, marks = "", iter(_TOKEN.findall(path))
    for mark in marks:
        if mark == "[":
            if not brackets:
                raise ValueError("array notation is not allowed")
            name = _quoted(_next(marks))
            named, schema = _step(schema, name)
            if (end := _next(marks)) != "]":
                raise ValueError(f"expected ] but got {end}")
        elif mark == ".":
            name = _next(marks)
            named, schema = _step(schema, name)
        else:
            raise ValueError(f"expected [ or . but got: {mark}")
        shown += f".{name}" if named else f"[{name}]"
    return shown.removeprefix("."), schema


def _next(marks: Iterator[str]) -> str:
    mark = next(marks, None)
    if mark is None:
        raise ValueError("unexpected end of JSON path")
    return mark


def _step(schema: Schema, name: str) -> tuple[bool, Schema]:
    properties, extra = schema.get("properties"), schema.get("additionalProperties")
    if properties and name in properties:
        return True, properties[name]
    if not properties and isinstance(extra, Mapping):
        return False, extra
    raise ValueError("does not refer to a valid field")


def _quoted(mark: str) -> str:
    if len(mark) < 2 or mark[0] != "'" or mark[-1] != "'":
        raise ValueError(f"expected single quoted string but got {mark}")

    def unescape(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise ValueError(f"invalid string literal: invalid escape char {match[0]}")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", unescape, mark[1:-1], flags=re.DOTALL)


Check = Callable[[Any, Path, list[FieldError]], None]

_ABSENT = object()
"""A value that was missing before: a null may have been added since."""


def old_items(schema: Schema, old: Any) -> Callable[[Any], Any]:
    """Finds the old item of a new one: by its keys in a list of type map, never in other lists."""
    names = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or type(old) is not list:
        return lambda _: None

    def key_of(item: Any) -> bytes:
        return encode_sorted([item.get(name) if type(item) is dict else None for name in names])

    by_key = {key_of(item): item for item in reversed(old)}
    return lambda item: by_key.get(key_of(item))


class _Judged(threading.local):
    """The objects being validated, per thread, because large objects are validated in threads."""

    new: Any = None
    old: Any = None


class Ratchet:
    """Suppresses the errors of unchanged parts.

    Wrap the check of every schema node in `guard`, and call `run`.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._judged = _Judged()

    def guard(self, check: Check) -> Check:
        """`check` without errors for unchanged values."""

        def guarded(value: Any, path: Path, errors: list[FieldError]) -> None:
            before = len(errors)
            check(value, path, errors)
            if len(errors) == before:
                return
            is_type = path is not None and path[0] is None and path[1] in ("apiVersion", "kind")
            if not is_type and same(value, self._old_at(path)):
                del errors[before:]

        return guarded

    def run(self, check: Check, new: Any, old: Any) -> list[FieldError]:
        """The errors of a guarded check in `new`, without those of unchanged parts of `old`."""
        judged = self._judged
        judged.new, judged.old = new, old
        errors: list[FieldError] = []
        try:
            check(new, None, errors)
        finally:
            judged.new = judged.old = None
        return errors

    def _old_at(self, path: Path) -> Any:
        steps: list[str | int] = []
        while path is not None:
            path, step = path
            steps.append(step)
        schema, new, old = self._schema, self._judged.new, self._judged.old
        for step in reversed(steps):
            if isinstance(step, int):
                old_item = old_items(schema, old)(new[step])
                old, new, schema = (
                    _ABSENT if old_item is None else old_item,
                    new[step],
                    schema.get("items") or {},
                )
            else:
                if type(old) is not dict:
                    return _ABSENT
                extra = schema.get("additionalProperties")
                inner = (schema.get("properties") or {}).get(step)
                schema = inner or (extra if isinstance(extra, Mapping) else {})
                old, new = old.get(step, _ABSENT), new.get(step)
        return old
