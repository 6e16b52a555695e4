"""Field sets split by the object's top-level members, so that results can be cached per member.

Objects of one kind change in the same few ways: the rest of a member's set after a change is cached by the
bytes of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from certwright.kube.apiserver.base.json_values import encode_sorted
from certwright.kube.apiserver.fieldmanager.fields_set import Node, difference, reconciled, union
from certwright.kube.apiserver.fieldmanager.fields_type import Type
from certwright.kube.apiserver.model.objects import decode_json
from certwright.kube.util.decoders import json_decoder

_KEPT = 4096  # cached results: as a rule about 1 KB each
_LONGEST = 8 * 1024  # bytes of an input

Members = Mapping[str, bytes]
"""The nodes of an object's top-level members (`f:metadata`, `f:spec`, …), separately: the metadata's set
differs from object to object, the rest is the same for many."""
_read_members = json_decoder(dict[str, msgspec.Raw]).decode


def members_of(fields: Node) -> Members:
    """A set, split by members."""
    return {name: encode_sorted(node) for name, node in fields.items()}


def reduced(kind: Type, fields: bytes, touched: Members, removed: Members) -> bytes:
    """The fields that were neither touched nor removed."""
    members: dict[str, msgspec.Raw] = {}
    for name, part in _read_members(fields).items():
        left = _member_less(kind, name, bytes(part), touched.get(name, b""), removed.get(name, b""))
        if left is not None:
            members[name] = left
    return encode_sorted(members)


def extended(kind: Type, fields: bytes, touched: Members, removed: Members) -> bytes:
    """The fields that were not removed, and those that were touched."""
    members = {name: msgspec.Raw(node) for name, node in touched.items()}
    for name, part in _read_members(fields).items():
        left = _member_less(kind, name, bytes(part), b"", removed.get(name, b""))
        if left is not None:
            members[name] = _member_more(name, bytes(left), touched[name]) if name in touched else left
    return encode_sorted(members)


def _member_less(kind: Type, name: str, part: bytes, touched: bytes, removed: bytes) -> msgspec.Raw | None:
    """The difference of a member's set and the others; None: nothing."""
    if len(part) + len(touched) + len(removed) > _LONGEST:
        return _less(kind, name, part, touched, removed)
    return _kept_less(kind, name, part, touched, removed)


def _less(kind: Type, name: str, part: bytes, *others: bytes) -> msgspec.Raw | None:
    left = reconciled({name: decode_json(part)}, kind)
    for other in others:
        if other:
            left = difference(left, {name: decode_json(other)})
    return msgspec.Raw(encode_sorted(left[name])) if name in left else None


def _member_more(name: str, part: bytes, other: bytes) -> msgspec.Raw:
    if len(part) + len(other) > _LONGEST:
        return _more(name, part, other)
    return _kept_more(name, part, other)


def _more(name: str, part: bytes, other: bytes) -> msgspec.Raw:
    both = union({name: decode_json(part)}, {name: decode_json(other)})
    return msgspec.Raw(encode_sorted(both[name]))


_kept_less, _kept_more = lru_cache(_KEPT)(_less), lru_cache(_KEPT)(_more)
