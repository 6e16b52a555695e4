"""JSON fields of the built-in kinds.

Source: the tables of `protobuf_fields`, which are read off the Go types of `k8s.io/api`.
"""

from __future__ import annotations

from functools import cache

from certwright.kube.apiserver.protobuf.fields import Field, fields_of
from certwright.kube.apiserver.protobuf.fields import message_of as find_message

META_MESSAGE = "meta.v1.ObjectMeta"


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
