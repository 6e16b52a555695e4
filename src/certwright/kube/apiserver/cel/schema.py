"""CEL types of a structural schema, and the conversion of objects to these types.

Source: Kubernetes documentation, "Validation rules" (available fields, escaping, type table).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from certwright.kube.apiserver.base.schema_common import EMBEDDED
from certwright.kube.apiserver.cel import checker as cel_checker
from certwright.kube.apiserver.cel import environment
from certwright.kube.util.durations import parse_duration

Schema = Mapping[str, Any]
Convert = Callable[[Any], Any]
"""Converts a value of JSON to one for rules, without changing it."""

INT_OR_STRING = "x-kubernetes-int-or-string"

_RESERVED = frozenset(
    {
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
        "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
    }
)  # fmt: skip
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile(r"__|[-./]")
_NAME = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*", re.ASCII)
_META: Schema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
}
_ROOT: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _META}


def escape(name: str) -> str | None:
    """A property's name in rules: `a-b` is `a__dash__b`; None where rules cannot name it."""
    if not _NAME.fullmatch(name):
        return None
    if name in _RESERVED:
        return f"__{name}__"
    return _ESCAPED.sub(lambda match: _ESCAPES[match[0]], name)


def as_root(schema: Schema) -> Schema:
    """The schema of a complete resource for rules: of its metadata only the name."""
    properties = schema.get("properties") or {}
    meta = properties.get("metadata") or {}
    inner = meta.get("properties") or {}
    texts = [
        properties.get("apiVersion"),
        properties.get("kind"),
        inner.get("name"),
        inner.get("generateName"),
    ]
    if meta.get("type") == "object" and all((text or {}).get("type") == "string" for text in texts):
        return schema
    return {**schema, "properties": {**properties, **_ROOT}}


# --- types ------------------------------------------------------------------------------------------------

_FORMATTED = {"byte": "bytes", "duration": "duration", "date": "timestamp", "date-time": "timestamp"}
_PLAIN = {"boolean": "bool", "integer": "int", "number": "double"}


def checker(schema: Schema, *, root: bool) -> cel_checker.Checker | None:
    """Checks rules on values of `schema`; None where its values are invisible to rules."""
    types = cel_checker.Types()
    kind = _kind(types, schema, root=root)
    if kind is None:
        return None
    return types.checker(kind, dict(_parts(types, as_root(schema) if root else schema, "")))


def _parts(types: cel_checker.Types, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Lists of lists and the like in the fields of objects."""
    if schema.get("type") != "object":
        return
    for name, prop in (schema.get("properties") or {}).items():
        where, kind = f"{path}{escape(name)}", prop.get("type")
        if escape(name) is None:
            continue
        if kind == "object" and not isinstance(prop.get("additionalProperties"), Mapping):
            inner = as_root(prop) if prop.get(EMBEDDED) else prop
            yield from _parts(types, inner, f"{where}.")
        elif _is_nested(prop) and (known := _kind(types, prop)) is not None:
            yield where, known


def _is_nested(schema: Schema) -> bool:
    """Whether it is a list or map of lists or maps."""
    inner = schema.get("items") if schema.get("type") == "array" else schema.get("additionalProperties")
    if not isinstance(inner, Mapping) or inner.get(INT_OR_STRING):
        return False
    return inner.get("type") == "array" or isinstance(inner.get("additionalProperties"), Mapping)


def _kind(types: cel_checker.Types, schema: Schema, *, root: bool = False) -> str | None:
    if schema.get(INT_OR_STRING):
        return "dyn"
    if root or schema.get(EMBEDDED):
        schema = as_root(schema)
    kind = schema.get("type")
    if kind == "string":
        return _FORMATTED.get(schema.get("format", ""), "string")
    if kind == "array":
        items = schema.get("items")
        inner = _kind(types, items) if isinstance(items, Mapping) else None
        return f"list({inner})" if inner else None
    if kind == "object":
        return _object_kind(types, schema)
    return _PLAIN.get(kind or "")


def _object_kind(types: cel_checker.Types, schema: Schema) -> str | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        inner = _kind(types, extra)
        return f"map({inner})" if inner else None
    fields, maps = [], {}
    for name, prop in schema.get("properties", {}).items():
        escaped, kind = escape(name), _kind(types, prop)
        if escaped is None or kind is None:
            continue
        # A reserved word can be a field's name, too, where the grammar allows it: `self.namespace`.
        for shown in (escaped, name) if name in _RESERVED else (escaped,):
            if kind.startswith("map("):
                maps[shown] = _element(kind[4:-1])
            elif kind.startswith("list("):
                fields.append(cel_checker.Field(shown, _element(kind[5:-1]), repeated=True))
            else:
                fields.append(cel_checker.Field(shown, kind))
    return types.message(fields, maps)


def _element(kind: str) -> str:
    # A message has no lists of lists: what is in the inner one is not checked.
    return "list" if kind.startswith("list(") else "map" if kind.startswith("map(") else kind


# --- values -----------------------------------------------------------------------------------------------


def converter(schema: Schema, *, root: bool = False) -> Convert | None:
    """The conversion from JSON for rules, or None where none is needed."""
    if schema.get(INT_OR_STRING):
        return None
    if root or schema.get(EMBEDDED):
        return _of_root(schema)
    kind = schema.get("type")
    if kind == "string":
        return _TEXTS.get(schema.get("format", ""))
    if kind == "number":
        return _number
    if kind == "array":
        items = schema.get("items")
        inner = converter(items) if isinstance(items, Mapping) else None
        if inner is None:
            return None
        return lambda value: [inner(item) for item in value] if type(value) is list else value
    return _of_object(schema) if kind == "object" else None


def _number(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _texts(parse: Callable[[str], Any]) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not str:
            return value
        try:
            return parse(value)
        except (ValueError, binascii.Error):
            # Only a value that was stored before the schema required the format.
            return value

    return convert


_TEXTS: dict[str, Convert] = {
    "byte": _texts(lambda text: base64.b64decode(text, validate=True)),
    "date": _texts(lambda text: environment.timestamp(f"{text}T00:00:00Z")),
    "date-time": _texts(environment.timestamp),
    "duration": _texts(lambda text: environment.duration(parse_duration(text))),
}


def _of_object(schema: Schema) -> Convert | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        each = converter(extra)
        if each is None:
            return None
        return lambda value: {k: each(item) for k, item in value.items()} if type(value) is dict else value
    changes: dict[str, tuple[str, Convert | None]] = {}
    for name, prop in schema.get("properties", {}).items():
        escaped, inner = escape(name), converter(prop)
        if inner is not None or escaped not in (None, name):
            changes[name] = (escaped or name, inner)
    if not changes:
        return None

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            return value
        changed = dict(value)
        for name in changes.keys() & value.keys():
            new_name, inner = changes[name]
            item = changed[name] if name in _RESERVED else changed.pop(name)
            changed[new_name] = inner(item) if inner is not None else item
        return changed

    return convert


def _of_root(schema: Schema) -> Convert:
    inner = _of_object(schema)

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            return value
        seen = inner(value) if inner is not None else value
        meta = value.get("metadata")
        if type(meta) is not dict:
            return seen
        return {**seen, "metadata": {key: meta[key] for key in ("name", "generateName") if key in meta}}

    return convert
