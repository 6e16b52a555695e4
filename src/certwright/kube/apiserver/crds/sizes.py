"""Size limits of schemas and of printer columns, so that what is compiled from them stays small.

Kubernetes has no such limit, but etcd accepts no definition over 1.5 MiB. Here a schema is compiled to
functions; Python's garbage collector visits each of them at times, and blocks all requests while it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from certwright.kube.api.errors import FieldError

Schema = Mapping[str, Any]

MAX_PARTS = 20_000
"""Schemas in the schema of one version (fields, items, branches), and the names that they require. Schemas of
whole Pods have some 2,000."""
MAX_COLUMNS = 100
"""Printer columns of one version: each is computed for every row of a Table."""
_SINGLE = ("items", "additionalProperties", "not")
_MANY = ("allOf", "anyOf", "oneOf")
_DEFAULT = 3  # weight: a field with a default is in every object, and all of its schema is used
_NAMES = ("required", "x-kubernetes-list-map-keys", "x-kubernetes-validations")


def size_errors(path: str, schema: Schema) -> list[FieldError]:
    """The errors of a schema with too many parts."""
    parts = _count(schema)
    if parts <= MAX_PARTS:
        return []
    detail = (
        f"Too many: {parts}: must have at most {MAX_PARTS} fields, items, branches and required names; leave "
        "parts of it open with x-kubernetes-preserve-unknown-fields"
    )
    return [FieldError(path, "FieldValueTooMany", detail)]


def _count(schema: Schema) -> int:
    count, waiting = 0, [schema]
    while waiting:
        part = waiting.pop()
        count += 1 + sum(len(part.get(word) or ()) for word in _NAMES) + _DEFAULT * ("default" in part)
        waiting += [child for child in _children(part) if isinstance(child, Mapping)]
    return count


def _children(schema: Schema) -> Iterator[Any]:
    yield from (schema.get("properties") or {}).values()
    for word in _SINGLE:
        yield schema.get(word)
    for word in _MANY:
        yield from schema.get(word) or ()
