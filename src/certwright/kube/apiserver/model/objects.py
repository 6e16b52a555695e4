"""Stored form of objects: each is two byte strings, which are spliced into its JSON.

`meta` is the JSON of `metadata`, including the resourceVersion; `body` is every other member without the
enclosing braces, less apiVersion and kind, which the path implies. So a get, a list or an event is a join of
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from certwright.kube.api.errors import TooLarge
from certwright.kube.apiserver.base.json_values import Json, encode_sorted
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.store.contract import Encode, Key, Row
from certwright.kube.util.decoders import json_decoder

encode_json = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder().decode
MAX_OBJECT = 6 * 1024 * 1024
"""Bytes of an object without its metadata: twice the limit of a request, because patches can let it grow."""
# Every row's metadata ends with it. A label may have this name too, but is no list; in a string the quotes
# would be escaped.
_MANAGED_OPENING = b',"managedFields":['
_OWN_COLUMNS = frozenset({"apiVersion", "kind", "metadata"})


def splice(prefix: bytes, meta: bytes, body: bytes) -> bytes:
    """The JSON of an object. `prefix` is its opening up to and including `"metadata":`."""
    return b"".join((prefix, meta, b",", body, b"}")) if body else b"".join((prefix, meta, b"}"))


def object_json(definition: ResourceDefinition, row: Row) -> bytes:
    """A row as the JSON of its object in the version of `definition`."""
    return splice(definition.prefix, row.meta, body(definition, row))


def body(definition: ResourceDefinition, row: Row) -> bytes:
    """The second byte string of a row's object in the version of `definition`."""
    return row.body if definition.body_out is None else definition.body_out(row)


def to_object(definition: ResourceDefinition, row: Row) -> Json:
    """A row as a new object that may be changed; its managed fields stay bytes."""
    meta, cut, managed = row.meta.partition(_MANAGED_OPENING)
    obj: Json = decode_json(splice(definition.prefix, meta + b"}" if cut else meta, body(definition, row)))
    if cut:
        obj["metadata"][MANAGED] = msgspec.Raw(b"[" + managed[:-1])
    return obj


def is_as_kept(definition: ResourceDefinition, row: Row, obj: Json) -> bool:
    """Whether the stored form of an unchanged object is still right. If its definition has converted the
    object on reading, Kubernetes writes it again."""
    if definition.body_out is None:
        return True
    kept = body_of(obj)
    if definition.body_in is not None:
        kept = definition.body_in(kept)
    return kept == row.body or bool(decode_json(b"{%b}" % kept) == decode_json(b"{%b}" % row.body))


_HTML = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def go_json(value: Any) -> str:
    """The JSON of a value as Go encodes it: members sorted, safe in HTML (Go `encoding/json`)."""
    return encode_sorted(value).decode().translate(_HTML)


def go_json_of_object(obj: Json) -> str:
    """The JSON of an object in Go's encoding, for messages."""
    managed = obj["metadata"].get(MANAGED) if type(obj.get("metadata")) is dict else None
    if type(managed) is msgspec.Raw:
        obj = {**obj, "metadata": {**obj["metadata"], MANAGED: decode_json(managed)}}
    return go_json(obj)


def with_managed_fields(obj: Json) -> Json:
    """The object, with managed fields as values that a patch can change."""
    raw = obj["metadata"].get(MANAGED)
    if raw is not None:
        obj["metadata"][MANAGED] = decode_json(raw)
    return obj


def to_metadata(row: Row) -> Json:
    """A row's metadata as a new object."""
    meta: Json = decode_json(row.meta)
    return meta


def body_of(obj: Json) -> bytes:
    """The second byte string of an object's row."""
    return encode_json({name: value for name, value in obj.items() if name not in _OWN_COLUMNS})[1:-1]


def columns(obj: Json) -> Encode:
    """Encodes `obj` at the revision that the store assigns. `obj` is not changed, because a store may encode
    before the write succeeds.

    Raises `TooLarge`.
    """
    metadata, body = obj["metadata"], body_of(obj)
    if len(body) > MAX_OBJECT:
        raise TooLarge(f"Request entity too large: limit of an object is {MAX_OBJECT}")

    def encode(revision: int) -> tuple[bytes, bytes]:
        written = {**metadata, "resourceVersion": str(revision)}
        if (managed := written.pop(MANAGED, None)) is not None:
            written[MANAGED] = managed  # last, so that readers can cut it off
        return encode_json(written), body

    return encode


def unstored(key: Key, obj: Json) -> Row:
    """The result of a dry run: the row that would have been written."""
    return Row(key, 0, encode_json(obj["metadata"]), body_of(obj))


def tombstone(row: Row) -> Encode:
    """Encodes the tombstone of a deleted row: its last state, at the revision of the deletion."""

    def encode(revision: int) -> tuple[bytes, bytes]:
        return at_revision(row.meta, revision), row.body

    return encode


def at_revision(meta: bytes, revision: int) -> bytes:
    """`meta` with another resourceVersion."""
    head, cut, managed = meta.partition(_MANAGED_OPENING)
    metadata = decode_json(head + b"}" if cut else head)
    metadata["resourceVersion"] = str(revision)
    return encode_json(metadata)[:-1] + cut + managed if cut else encode_json(metadata)


class _Labels(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Uid(msgspec.Struct):
    uid: str = ""


class Owner(msgspec.Struct, rename="camel", frozen=True):
    """An owner reference, reduced to what identifies the owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    block_owner_deletion: bool | None = None

    @property
    def group(self) -> str:
        """The group of `apiVersion`; empty for the core group."""
        return self.api_version.rpartition("/")[0]


class _Owners(msgspec.Struct, rename="camel"):
    owner_references: tuple[Owner, ...] | None = None


_skim = json_decoder(msgspec.Raw).decode


def problem_of(row: Row) -> str:
    """Why a stored row is no valid object, as half a sentence; empty for a valid one. Its body may be missing
    (empty)."""
    if not (row.meta.startswith(b"{") and row.meta.endswith(b"}")):
        return "its metadata is no JSON object"
    try:
        for text in (row.meta, b"{%b}" % row.body) if row.body else (row.meta,):
            if not text.isascii():
                text.decode()
            _skim(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "it is not JSON in UTF-8"
    return ""


_labels = json_decoder(_Labels).decode
_uid = json_decoder(_Uid).decode
_owners = json_decoder(_Owners).decode


def labels_of(meta: bytes) -> dict[str, str]:
    """Only the labels: cheaper than the whole metadata."""
    return (_labels(meta).labels or {}) if b'"labels"' in meta else {}


def uid_of(meta: bytes) -> str:
    """Only the uid."""
    return _uid(meta).uid


def owners_of(meta: bytes) -> tuple[Owner, ...]:
    """Only the owner references."""
    return (_owners(meta).owner_references or ()) if b'"ownerReferences"' in meta else ()


_members = json_decoder(dict[str, msgspec.Raw]).decode
_versions = json_decoder(list[dict[str, msgspec.Raw]]).decode


def outline(definition: ResourceDefinition, row: Row) -> Json:
    """A row as a new object that may be changed, each `openAPIV3Schema` in it a `msgspec.Raw`."""
    crd = to_object(definition, row._replace(body=b""))
    return crd | _read(_members(b"{%b}" % row.body), "spec", _spec)


def lightly(definition: ResourceDefinition, row: Row) -> Json:
    """A row as a new object whose schemas are not needed: the outline of a definition."""
    return (outline if definition.is_crd else to_object)(definition, row)


def _read(members: Mapping[str, msgspec.Raw], name: str, read: Callable[[msgspec.Raw], object]) -> Json:
    """All members decoded, the one with that name by `read`."""
    return {key: read(raw) if key == name else decode_json(raw) for key, raw in members.items()}


def _spec(raw: msgspec.Raw) -> Json:
    return _read(_members(raw), "versions", _all_versions)


def _all_versions(raw: msgspec.Raw) -> list[Json]:
    return [_read(version, "schema", _members) for version in _versions(raw)]
