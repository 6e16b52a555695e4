"""Paths of requests. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from certwright.kube.api import errors
from certwright.kube.api.kinds import AnyKind

_DOT_SEGMENTS: Final = frozenset({".", ".."})
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9._~-]*")  # RFC 3986 §2.3: never quoted


def object_path(kind: AnyKind, namespace: str, name: str, subresource: str = "") -> str:
    """The path of one object. Raises `NotFound` for a name that no object can have."""
    # An annotation or a field may have named it. Without a name the request would be for all objects; a proxy
    # that removes dot segments (RFC 3986 §5.2.4) would pass it on for another one, or for the namespace.
    if not name or {namespace, name} & _DOT_SEGMENTS:
        raise errors.NotFound(f'{kind.plural} "{name}" not found')
    return _join(kind, namespace, name, subresource)


def collection_path(kind: AnyKind, namespace: str) -> str:
    """The path of the objects of a kind; `namespace` "": in all."""
    return _join(kind, namespace)


def _join(kind: AnyKind, namespace: str, name: str = "", subresource: str = "") -> str:
    # Nearly every name consists of these, and the check is five times as fast as quoting.
    if _UNRESERVED.fullmatch(namespace + name):
        return kind.path(namespace, name, subresource)
    return kind.path(quote(namespace, safe=""), quote(name, safe=""), subresource)


def with_query(path: str, query: Mapping[str, str]) -> str:
    """The path with those parameters that are not empty."""
    given = without_empty(query) if query else query
    return f"{path}?{urlencode(given)}" if given else path


def without_empty(values: Mapping[str, str]) -> dict[str, str]:
    """The values that are not empty."""
    return {name: value for name, value in values.items() if value}


def for_write(path: str, *, dry_run: bool, strict: bool = False) -> str:
    """The path of a write, with its options."""
    if not (dry_run or strict):
        return path
    query = {"dryRun": "All" if dry_run else "", "fieldValidation": "Strict" if strict else ""}
    return with_query(path, query)
