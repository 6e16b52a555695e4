"""API server errors as sentences that name field, value and fix.

The server reports the error in Kubernetes' words. The fix comes from the kind's schema, so there is no
separate list; only cert-manager's CRDs, which lack values of ours, are recognized by such a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from certwright.cli import lazy
from certwright.kube.api.errors import ApiError, Invalid, NotFound, TooLarge
from certwright.resources.certificate import KEY_ALGORITHMS

_UNKNOWN = re.compile(r'unknown field "((?:[^"\\]|\\.)*)"')
_DUPLICATE = re.compile(r'duplicate field "((?:[^"\\]|\\.)*)"')
_UNSUPPORTED = re.compile(r'Unsupported value: "((?:[^"\\]|\\.)*)": supported values: (.*)')
_LIMIT = re.compile(r"limit is (\d+)$")
_EXPECTED_TYPE = re.compile(r"must be of type (\w+)")
_WRONG_TYPE = re.compile(r"cannot be handled as an? \S+: (\S+): (expected an? (\w+), got .*)$")
_PART = re.compile(r"[^.\[\]]+")
_FIX_BY_TYPE = {
    "array": "write a list, e.g. `[a, b]`, or one `- item` per line",
    "byte": "write it in base64, in one line",
    "boolean": "write true or false, without quotes",
    "integer": "write a whole number, without quotes",
    "number": "write a number, without quotes",
    "object": "write fields below it, indented",
    "string": 'write text; put quotes around it if it looks like a number or a truth value ("1.10", "yes")',
}
_OTHER_DEFINITIONS = (
    "the server has cert-manager's CRDs, which do not allow it: install those that `certwright crds` prints"
)
_MOST_NAMES_SHOWN = 12
_LONGEST_VALUE_SHOWN = 60
Schema = Mapping[str, Any]


def explain(error: ApiError, schema: Schema | None, content: Mapping[str, Any] | None = None) -> list[str]:
    """One sentence per error, each with its field first and the fix, if known, last.

    `schema` is the kind's OpenAPI schema (`openAPIV3Schema` of its CRD), if there is one. `content` is the
    object as written; None if its values must not be shown.
    """
    unknown = [_unknown_field(path, schema) for path in _UNKNOWN.findall(error.message)]
    doubled = [f"{path}: is a duplicate; keep one of the two" for path in _DUPLICATE.findall(error.message)]
    if unknown or doubled:
        return unknown + doubled
    if isinstance(error, Invalid) and error.causes:
        return [
            _with_fix(cause.field, _with_value(cause.field, cause.message, content), schema)
            for cause in error.causes
        ]
    if typed := _WRONG_TYPE.search(error.message):
        fix = _FIX_BY_TYPE.get(typed[3])
        return [f"{typed[1]}: {typed[2]}" + (f"; {fix}" if fix else "")]
    if isinstance(error, TooLarge) and (limit := _LIMIT.search(error.message)):
        most = int(limit[1]) / 2**20
        return [f"the object is too large: the server takes at most {most:.4g} MiB in one request; split it"]
    if isinstance(error, NotFound) and error.details is not None and error.details.kind == "namespaces":
        return [f"metadata.namespace: {error.message}; create it first, or name another"]
    return [str(error)]


def _unknown_field(path: str, schema: Schema | None) -> str:
    parents, _, name = path.rpartition(".")
    known = sorted(_properties(_find(schema, parents)))
    near = lazy.difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"{path}: unknown field; did you mean `{near[0]}`?"
    elsewhere = next(_paths_to(schema, name, ""), None)
    if elsewhere:
        return f"{path}: unknown field; did you mean `{elsewhere}`?"
    if 0 < len(known) <= _MOST_NAMES_SHOWN:
        return f"{path}: unknown field; known here: {', '.join(known)}"
    return f"{path}: unknown field; take it out"


def _with_fix(path: str, message: str, schema: Schema | None) -> str:
    text = f"{path}: {message}" if path else message
    if fix := _fix(path, message, schema):
        return f"{text.rstrip('.')}; {fix}"
    return text


def _fix(path: str, message: str, schema: Schema | None) -> str:
    if path == "metadata.annotations" and message.startswith("Too long"):
        return "apply keeps a copy of the object in an annotation, so it may have 256 KiB at most: split it"
    if expected := _EXPECTED_TYPE.search(message):
        described = str(_find(schema, path).get("type", ""))
        return _FIX_BY_TYPE.get(expected[1]) or _FIX_BY_TYPE.get(described, "")
    if name := _valid_name(message):
        return f'write e.g. "{name}"'
    if unsupported := _UNSUPPORTED.match(message):
        if path == "spec.privateKey.algorithm" and unsupported[1] in KEY_ALGORITHMS:
            return _OTHER_DEFINITIONS
        near = _nearest(unsupported[1], re.findall(r'"([^"]*)"', unsupported[2]))
        return f'did you mean "{near}"?' if near else ""
    if message == "Required value":
        return f"add `{path.rpartition('.')[2]}`"
    return ""


def _with_value(path: str, message: str, content: Mapping[str, Any] | None) -> str:
    """The message with the value, if Kubernetes reports only its type."""
    expected = _EXPECTED_TYPE.search(message)
    value = _value_at(content, path)
    if not expected or value is None:
        return message
    shown = msgspec.json.encode(value).decode()
    if len(shown) > _LONGEST_VALUE_SHOWN:
        shown = f"{shown[:_LONGEST_VALUE_SHOWN]}…"
    return f"Invalid value: {shown}: must be of type {expected[1]}"


def _value_at(content: Any, path: str) -> Any:
    """The value of the field at `path`; None if it is missing."""
    here = content
    for part in _PART.findall(path):
        if isinstance(here, Mapping):
            here = here.get(part)
        elif isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        else:
            return None
    return here


def _nearest(word: str, words: list[str]) -> str:
    """The one of `words` that was probably meant, whatever its case; "" for none."""
    bare = {re.sub(r"[^a-z0-9]", "", known.lower()): known for known in words}
    near = lazy.difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", word.lower()), bare, n=1)
    return bare[near[0]] if near else ""


def _valid_name(message: str) -> str:
    """The nearest DNS-1123 name to the rejected one; "" if the error is about something else."""
    match = re.match(r'Invalid value: "((?:[^"\\]|\\.)*)": a lowercase RFC 1123 (subdomain|label)', message)
    if not match:
        return ""
    dots, longest = (".", 253) if match[2] == "subdomain" else ("", 63)
    dashed = re.sub(rf"[^a-z0-9{dots}]+", "-", match[1].lower())
    return re.sub(r"(^|\.)-+|-+(\.|$)", r"\1\2", dashed)[:longest].strip("-.")


def _find(schema: Schema | None, path: str) -> Schema:
    """The schema of the field at `path`; empty if there is none."""
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
    """The paths of fields called `name`, nearest to the root first, without `status`."""
    inner = [(key, value) for key, value in _properties(schema or {}).items() if (path or key != "status")]
    for key, _ in inner:
        if key == name:
            yield f"{path}.{key}".lstrip(".")
    for key, value in inner:
        if depth:
            yield from _paths_to(value, name, f"{path}.{key}", depth=depth - 1)
