"""From a refusal of the API server to sentences that name field, value and fix.

The server says what is wrong in Kubernetes' words. What would be right is in the kind's schema, so that a
hint needs no list of our own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from certwright.resources.errors import ApiError, Invalid

_UNKNOWN = re.compile(r'unknown field "((?:[^"\\]|\\.)*)"')
_DUPLICATE = re.compile(r'duplicate field "((?:[^"\\]|\\.)*)"')
_PART = re.compile(r"[^.\[\]]+")
_FIX_BY_TYPE = {
    "array": "write a list, for instance `[a, b]`, or one `- item` per line",
    "boolean": "write true or false, without quotes",
    "integer": "write a whole number, without quotes",
    "number": "write a number, without quotes",
    "object": "write fields below it, indented",
    "string": 'write a text; put quotes round it if it looks like a number or a truth value ("1.10", "yes")',
}
_MOST_NAMES_SHOWN = 12
Schema = Mapping[str, Any]


def explain(error: ApiError, schema: Schema | None) -> list[str]:
    """One sentence per thing that is wrong, each with its field first and, where we know it, the fix last.

    `schema` is the kind's OpenAPI schema (`openAPIV3Schema` of its CRD), where there is one.
    """
    unknown = [_unknown_field(path, schema) for path in _UNKNOWN.findall(error.message)]
    doubled = [f"{path}: is there twice; keep one of the two" for path in _DUPLICATE.findall(error.message)]
    if unknown or doubled:
        return unknown + doubled
    if isinstance(error, Invalid) and error.causes:
        return [_with_fix(cause.field, cause.message, schema) for cause in error.causes]
    return [error.message]


def _unknown_field(path: str, schema: Schema | None) -> str:
    parents, _, name = path.rpartition(".")
    known = sorted(_properties(_find(schema, parents)))
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"{path}: unknown field; did you mean `{near[0]}`?"
    elsewhere = next(_paths_to(schema, name, ""), None)
    if elsewhere:
        return f"{path}: unknown field; did you mean `{elsewhere}`?"
    if 0 < len(known) <= _MOST_NAMES_SHOWN:
        return f"{path}: unknown field; known here: {', '.join(known)}"
    return f"{path}: unknown field; take it out"


def _with_fix(path: str, message: str, schema: Schema | None) -> str:
    told = f"{path}: {message}" if path else message
    if fix := _fix(path, message, schema):
        return f"{told.rstrip('.')}; {fix}"
    return told


def _fix(path: str, message: str, schema: Schema | None) -> str:
    if "must be of type" in message:
        wanted = str(_find(schema, path).get("type", "")) or message.partition("must be of type ")[2]
        return _FIX_BY_TYPE.get(wanted.partition(":")[0].strip(), "")
    if path in ("metadata.name", "metadata.namespace") and (value := _quoted_value(message)):
        return f'write for instance "{_as_name(value)}"' if _as_name(value) else ""
    if message.startswith("Required value"):
        return f"add `{path.rpartition('.')[2]}`"
    return ""


def _quoted_value(message: str) -> str:
    match = re.match(r'Invalid value: "((?:[^"\\]|\\.)*)"', message)
    return match[1] if match else ""


def _as_name(value: str) -> str:
    """The nearest DNS-1123 subdomain name."""
    dashed = re.sub(r"[^a-z0-9.]+", "-", value.lower())
    return re.sub(r"(^|\.)-+|-+(\.|$)", r"\1\2", dashed)[:253].strip("-.")


def _find(schema: Schema | None, path: str) -> Schema:
    """The schema of the field at `path`; empty where it is not described."""
    here: Schema = schema or {}
    for part in _PART.findall(path):
        if part.isdigit() and "items" in here:
            here = here["items"]
            continue
        additional = here.get("additionalProperties")
        fallback = additional if isinstance(additional, Mapping) else {}
        here = _properties(here).get(part, fallback)
    return here


def _properties(schema: Schema) -> Mapping[str, Schema]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _paths_to(schema: Schema | None, name: str, path: str, *, depth: int = 4) -> Iterator[str]:
    """Where a field called `name` is described, nearest to the root first, `status` left out."""
    inner = [(key, value) for key, value in _properties(schema or {}).items() if (path or key != "status")]
    for key, _ in inner:
        if key == name:
            yield f"{path}.{key}".lstrip(".")
    for key, value in inner:
        if depth:
            yield from _paths_to(value, name, f"{path}.{key}", depth=depth - 1)
