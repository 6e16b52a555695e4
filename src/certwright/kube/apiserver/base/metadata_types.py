"""Types of the members of `metadata`, and the errors for others.

Source: Kubernetes API reference, ObjectMeta, OwnerReference and ManagedFieldsEntry v1 meta.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from certwright.kube.apiserver.base.json_values import Json, mismatch, wrong_type
from certwright.kube.util.caches import remembering
from certwright.kube.util.decoders import convert

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

MANAGED = "managedFields"


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: _Int64 = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: _Int64 = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Owner] = []
    finalizers: list[str] = []


class _Entry(msgspec.Struct, rename="camel"):
    manager: str | None = ""
    operation: str | None = ""
    api_version: str | None = ""
    time: str | None = None
    fields_type: str | None = ""
    fields_v1: Any = msgspec.field(default=None, name="fieldsV1")
    subresource: str | None = ""


MEMBERS = frozenset({*_Metadata.__struct_encode_fields__, MANAGED})
OWNER_MEMBERS = frozenset(_Owner.__struct_encode_fields__)
_ENTRY_MEMBERS = frozenset(_Entry.__struct_encode_fields__)
_TIMES = ("creationTimestamp", "deletionTimestamp")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)")


def fits(metadata: Json) -> bool:
    """Whether all members have their types; nulls within them become empty values."""
    if not _fits(metadata):
        _fill_nulls(metadata)
        if not _fits(metadata):
            return False
    # A list is twice as fast here as a generator.
    return all([_is_time(metadata[name]) for name in _TIMES if name in metadata])  # noqa: C419


def _fits(metadata: Json) -> bool:
    try:
        convert(metadata, _Metadata)
    except msgspec.ValidationError:
        return False
    return True


def _fill_nulls(metadata: Json) -> None:
    """A null becomes the zero value of its type: an empty text, an object without members.

    A whole number is an integer in any notation.
    """
    for name in ("generation", "deletionGracePeriodSeconds"):
        if type(number := metadata.get(name)) is float and number.is_integer():
            metadata[name] = int(number)
    for name in ("labels", "annotations"):
        if type(members := metadata.get(name)) is dict:
            metadata[name] = {key: "" if value is None else value for key, value in members.items()}
    if type(finalizers := metadata.get("finalizers")) is list:
        metadata["finalizers"] = ["" if item is None else item for item in finalizers]
    if type(owners := metadata.get("ownerReferences")) is list:
        metadata["ownerReferences"] = [_without_nulls(item) for item in owners]


def _without_nulls(value: Any) -> Any:
    if type(value) is dict:
        return {key: item for key, item in value.items() if item is not None}
    return {} if value is None else value


@remembering(most=1024, longest=35)
def _is_time(text: str) -> bool:
    """Whether it is a time in RFC 3339 with its time zone."""
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1])
    except ValueError:
        return False
    return True


def in_utc(text: str) -> str:
    """A valid time as Kubernetes writes it: UTC, whole seconds."""
    time = datetime.fromisoformat(text.replace(",", "."))
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clean_entries(entries: list[Any]) -> list[str] | None:
    """The paths of unknown members of `metadata.managedFields`, which are dropped; None: a type is wrong."""
    try:
        typed_entries = convert(entries, list[_Entry | None])
    except msgspec.ValidationError:
        return None
    if not all(entry is None or entry.time is None or _is_time(entry.time) for entry in typed_entries):
        return None
    unknown: list[str] = []
    for index, entry in enumerate(entries):
        for name in sorted(set(entry or ()) - _ENTRY_MEMBERS):
            unknown.append(f"metadata.{MANAGED}[{index}].{name}")
            del entry[name]
    return unknown


def problem(metadata: Any) -> str:
    """Why `metadata` does not have the types of ObjectMeta."""
    if type(metadata) is not dict:
        return wrong_type("metadata", "an object", metadata)
    try:
        convert(metadata, _Metadata)
    except msgspec.ValidationError as error:
        return mismatch(error, "metadata")
    for name in _TIMES:
        if name in metadata and not _is_time(metadata[name]):
            return f"metadata.{name}: {_NO_TIME}"
    try:
        convert(metadata.get(MANAGED), list[_Entry | None])
    except msgspec.ValidationError as error:
        return mismatch(error, f"metadata.{MANAGED}")
    return f"metadata.{MANAGED}: {_NO_TIME}"


_NO_TIME = "expected a time in RFC 3339, e.g. 2026-01-02T15:04:05Z"
