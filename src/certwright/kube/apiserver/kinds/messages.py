"""JSON fields of the built-in kinds, and the keywords of their OpenAPI schemas.

Source: the tables of `protobuf_fields`, which are read off the Go types of `k8s.io/api`; the OpenAPI
documents that Kubernetes publishes.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from certwright.kube.apiserver.protobuf.fields import Field, fields_of
from certwright.kube.apiserver.protobuf.fields import message_of as find_message

META_MESSAGE = "meta.v1.ObjectMeta"

_KEYWORDS_FILE = Path(__file__).parents[1] / "data" / "openapi.json.zlib"


def message_of(api_version: str, kind: str) -> str:
    """The message that a kind is. Raises `KeyError` for a kind that is not built in."""
    message = find_message(api_version, kind)
    if message is None:
        raise KeyError((api_version, kind))
    return message


@cache
def fields(message: str) -> tuple[Field, ...]:
    """The fields of a message, as they stand in its JSON: inline ones in place. Raises `KeyError`."""
    all_fields: list[Field] = []
    for field in fields_of(message):
        all_fields += fields(field.type) if field.inline else (field,)
    return tuple(all_fields)


def wrapped_list(message: str) -> Field | None:
    """The only field of a message that is a list in JSON, None for any other message."""
    first = fields(message)
    return first[0] if len(first) == 1 and first[0].wraps_list else None


def keywords(message: str) -> dict[str, Any]:
    """The keywords of a message's schema beyond types, e.g. `required`, and under `properties` those of its
    fields: list type, map keys, patch strategy, merge key, map type, default."""
    return _read_keywords().get(message, {})


@cache
def _read_keywords() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = msgspec.json.decode(zlib.decompress(_KEYWORDS_FILE.read_bytes()))
    return loaded
