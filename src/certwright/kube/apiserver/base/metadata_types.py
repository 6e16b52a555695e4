"""Types of the members of `metadata`, and the errors of Go's decoder for others.

Source: Kubernetes API reference, ObjectMeta, OwnerReference and ManagedFieldsEntry v1 meta; Go
`encoding/json`, UnmarshalTypeError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from certwright.kube.api.quoting import quoted
from certwright.kube.util.decoders import convert
from certwright.kube.util.memo import remembering

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

Json = dict[str, Any]
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
    """Whether all members have their types; nulls within them become what Go decodes them to."""
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
    """Whether Go's `time.Parse(time.RFC3339, …)` accepts it."""
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1])
    except ValueError:
        return False
    return True


def in_utc(text: str) -> str:
    """A valid time, as Go writes it: UTC, whole seconds."""
    time = datetime.fromisoformat(text.replace(",", "."))
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clean_entries(entries: list[Any]) -> list[str] | None:
    """The paths of unknown members of `metadata.managedFields`, which are dropped; None: a type is wrong."""
    try:
        found = convert(entries, list[_Entry | None])
    except msgspec.ValidationError:
        return None
    if not all(entry is None or entry.time is None or _is_time(entry.time) for entry in found):
        return None
    unknown: list[str] = []
    for index, entry in enumerate(entries):
        for name in sorted(set(entry or ()) - _ENTRY_MEMBERS):
            unknown.append(f"metadata.{MANAGED}[{index}].{name}")
            del entry[name]
    return unknown


# --- Go's messages ----------------------------------------------------------------------------------------

_JSON_TYPES = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
_MAP, _LIST, _TIME_TYPE, _ANY = "map[string]string", "[]", "v1.Time", ""
_OBJECT_META = {
    "name": "string",
    "generateName": "string",
    "namespace": "string",
    "selfLink": "string",
    "uid": "types.UID",
    "resourceVersion": "string",
    "generation": "int64",
    "creationTimestamp": _TIME_TYPE,
    "deletionTimestamp": _TIME_TYPE,
    "deletionGracePeriodSeconds": "int64",
    "labels": _MAP,
    "annotations": _MAP,
    "ownerReferences": "[]v1.OwnerReference",
    "finalizers": "[]string",
    "managedFields": "[]v1.ManagedFieldsEntry",
}
_PRECONDITIONS = {"uid": "types.UID", "resourceVersion": "string"}
STRUCTS: Mapping[str, Mapping[str, str]] = {
    "v1.Preconditions": _PRECONDITIONS,
    "v1.OwnerReference": {
        "apiVersion": "string",
        "kind": "string",
        "name": "string",
        "uid": "types.UID",
        "controller": "bool",
        "blockOwnerDeletion": "bool",
    },
    "v1.ManagedFieldsEntry": {
        "manager": "string",
        "operation": "v1.ManagedFieldsOperationType",
        "apiVersion": "string",
        "time": _TIME_TYPE,
        "fieldsType": "string",
        "fieldsV1": _ANY,
        "subresource": "string",
    },
}


def cannot_unmarshal(value: Any, where: str) -> str:
    """Go's message for a value of another type than what is at `where`, such as `Go value of type string`."""
    shown = _JSON_TYPES.get(type(value), "null")
    if shown == "number" and where.endswith(" int64"):
        # An integer that is too large was decoded as a float.
        shown = f"number {value}" if abs(value) < 2**63 else f"number {float(value):.0f}"
    return f"json: cannot unmarshal {shown} into {where}"


class _Times(ValueError):
    """An unreadable time ends the decoding; errors of other types are reported afterwards."""


def problem(metadata: Any, *, kind: str) -> str:
    """The error of Go's decoder for metadata with wrong types.

    `kind` is that of a built-in object, which is decoded as a whole; empty: of a custom one, whose metadata
    is decoded separately.
    """
    if type(metadata) is not dict:
        where = f"Go struct field {kind}.metadata" if kind else "Go value"
        return cannot_unmarshal(metadata, f"{where} of type v1.ObjectMeta")
    return struct_problem(metadata, _OBJECT_META, "ObjectMeta", "metadata." if kind else "")


def struct_problem(value: Json, members: Mapping[str, str], struct: str, path: str = "") -> str:
    """The error of Go's decoder for the members of a struct, whose Go types are given; empty: none.

    `path` is the struct's path in the decoded document.
    """
    try:
        return next(iter(_of_struct(value, members, struct, path)), "")
    except _Times as error:
        return str(error)


def _of_struct(value: Json, members: Mapping[str, str], struct: str, path: str) -> list[str]:
    found: list[str] = []
    for name in sorted(value):
        # Managed fields that a patch leaves alone are bytes, and were checked when they were written.
        if value[name] is None or type(value[name]) is msgspec.Raw:
            continue
        if expected := members.get(name):
            found += _of_member(value[name], expected, f"Go struct field {struct}.{path}{name}", path + name)
    return found


def _of_member(value: Any, expected: str, where: str, path: str) -> list[str]:
    if expected == _TIME_TYPE:
        if type(value) is not str:
            raise _Times(cannot_unmarshal(value, f"{where} of type string"))
        if not _is_time(value):
            raise _Times(_unreadable_time(value))
        return []
    if expected == _MAP:
        if type(value) is dict:
            wrong = [item for _, item in sorted(value.items()) if type(item) not in (str, type(None))]
            return [cannot_unmarshal(item, f"{where} of type string") for item in wrong]
    elif (inner := STRUCTS.get(expected)) is not None:
        if type(value) is dict:
            return _of_struct(value, inner, expected.removeprefix("v1."), f"{path}.")
    elif expected.startswith(_LIST):
        if type(value) is list:
            return [text for item in value for text in _of_item(item, expected[2:], where, path)]
    elif _is_a(value, expected):
        return []
    return [cannot_unmarshal(value, f"{where} of type {expected}")]


def _of_item(value: Any, expected: str, where: str, path: str) -> list[str]:
    members = STRUCTS.get(expected)
    if value is None or (members is None and type(value) is str):
        return []
    if members is None or type(value) is not dict:
        return [cannot_unmarshal(value, f"{where} of type {expected}")]
    return _of_struct(value, members, expected.removeprefix("v1."), f"{path}.")


def _is_a(value: Any, expected: str) -> bool:
    if expected == "bool":
        return type(value) is bool
    if expected == "int64":
        return type(value) is int and -(2**63) <= value < 2**63
    return type(value) is str


_LAYOUT = "2006-01-02T15:04:05Z07:00"
_PARTS = (
    ("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"),
    ("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d(?:[.,]\d+)?"),
    ("Z07:00", r"Z|[+-]\d\d:\d\d"),
)  # fmt: skip


def _unreadable_time(text: str) -> str:
    """The message of Go's `time.ParseError`."""
    head, at = f'parsing time {quoted(text)} as "{_LAYOUT}": ', 0
    for part, pattern in _PARTS:
        match = re.compile(pattern).match(text, at)
        if match is None:
            return f"{head}cannot parse {quoted(text[at:])} as {quoted(part)}"
        at = match.end()
    if at < len(text):
        return f"parsing time {quoted(text)}: extra text: {quoted(text[at:])}"
    limits = {"month": (5, 12), "hour": (11, 23), "minute": (14, 59), "second": (17, 59)}
    wrong = (name for name, (start, most) in limits.items() if int(text[start : start + 2]) > most)
    return f"parsing time {quoted(text)}: {next(wrong, 'month' if text[5:7] == '00' else 'day')} out of range"
