"""Maximum sizes of a schema's values: the input of cost estimates.

Source: Kubernetes documentation, "Resource use by validation functions"; apiserver `pkg/cel/common`,
`pkg/cel/limits.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from certwright.kube.apiserver.base.schema_keywords import EMBEDDED
from certwright.kube.apiserver.cel.schema import INT_OR_STRING, as_root, escape

Schema = Mapping[str, Any]

MAX_REQUEST = 3 * 1024 * 1024
"""The bytes of a request that count."""


@dataclass(frozen=True, slots=True)
class Sized:
    """The maximum number of characters, items or entries of a value, and the minimum bytes of JSON; the same
    for nested values."""

    most: int
    least_bytes: int
    fields: Mapping[str, Sized] = field(default_factory=dict)
    keys: Sized | None = None
    values: Sized | None = None

    def at(self, path: tuple[str, ...]) -> Sized | None:
        """The part at a path: names of fields, `@items`, `@keys`, `@values`."""
        found: Sized | None = self
        for step in path:
            if found is None:
                return None
            if step in ("@items", "@values"):
                found = found.values
            else:
                found = found.keys if step == "@keys" else found.fields.get(step)
        return found

    @property
    def cardinality(self) -> int:
        """The maximum number of such values in one request."""
        return MAX_REQUEST // (self.least_bytes + 1)


_TEXT = Sized(MAX_REQUEST - 2, 2)
_KEY = Sized(0, 2)
_FORMATTED = {"duration": Sized(32, 3), "date": Sized(12, 12), "date-time": Sized(32, 21)}
_PLAIN = {"boolean": Sized(0, 4), "number": Sized(0, 1), "integer": Sized(0, 1)}


def sized(schema: Schema, *, root: bool) -> Sized | None:
    """The size of values of `schema`; None where they are invisible to rules."""
    if schema.get(INT_OR_STRING):
        return Sized(_length(schema, MAX_REQUEST - 2), 1)
    if root or schema.get(EMBEDDED):
        schema = as_root(schema)
    kind = schema.get("type") or ""
    if kind == "string":
        return _of_text(schema)
    if kind == "array":
        return _of_list(schema)
    return _of_object(schema) if kind == "object" else _PLAIN.get(kind)


def _length(schema: Schema, otherwise: int) -> int:
    # A character takes up to four bytes.
    return otherwise if (most := schema.get("maxLength")) is None else max(most, 0) * 4


def _of_text(schema: Schema) -> Sized:
    form = schema.get("format", "")
    if form in _FORMATTED:
        return _FORMATTED[form]
    if form == "byte":
        most = schema.get("maxLength")
        return Sized(_TEXT.most if most is None else max(most, 0), 2)
    longest = max((len(str(value).encode()) for value in schema.get("enum") or ()), default=_TEXT.most)
    return Sized(_length(schema, longest), 2)


def _of_list(schema: Schema) -> Sized | None:
    items = schema.get("items")
    inner = sized(items, root=False) if isinstance(items, Mapping) else None
    if inner is None:
        return None
    most = schema.get("maxItems")
    most = (MAX_REQUEST - 2) // (inner.least_bytes + 1) if most is None else max(most, 0)
    return Sized(most, 2, values=inner)


def _of_object(schema: Schema) -> Sized | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        inner = sized(extra, root=False)
        if inner is None:
            return None
        most = schema.get("maxProperties")
        most = (MAX_REQUEST - 2) // (inner.least_bytes + 6) if most is None else max(most, 0)
        return Sized(most, 2, keys=_KEY, values=inner)
    fields, least = {}, 2
    wanted = schema.get("required") or ()
    for name, prop in (schema.get("properties") or {}).items():
        inner = sized(prop, root=False)
        if inner is None:
            continue
        if (escaped := escape(name)) is not None:
            fields[escaped] = inner
        if name in wanted and prop.get("default") is None:
            least += len(name.encode()) + inner.least_bytes + 4
    return Sized(0, least, fields)
