"""Field paths, as CustomResourceDefinitions write them: `.spec.a`, `.spec['b']`.

Source: Kubernetes API reference, ValidationRule v1 apiextensions (fieldPath), SelectableField v1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

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
