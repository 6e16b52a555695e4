"""Entries of `metadata.managedFields`: decoded, checked, sorted and limited in number.

Source: Kubernetes API reference, ManagedFieldsEntry v1 meta; apimachinery `pkg/util/managedfields`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from certwright.kube.api.errors import FieldError, invalid_object, too_long
from certwright.kube.apiserver.base.json_values import Json, encode_sorted
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.fieldmanager.fieldpath import FieldsError, read, union_of
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.requests.bodies import check_manager
from certwright.kube.util.decoders import json_decoder

MAX_UPDATERS: Final = 10
"""The maximum number of update entries of an object; older ones are merged."""
ANCIENT: Final = "ancient-changes"
MAX_SUBRESOURCE_BYTES: Final = 256
UPDATE: Final = "Update"
APPLY: Final = "Apply"
NOTHING: Final = b"{}"
"""An empty set of fields."""
_NO_FIELDS = msgspec.Raw(NOTHING)


class Entry(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """One manager's fields (Kubernetes API reference, ManagedFieldsEntry v1 meta)."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: str | None = None
    fields_type: str = ""
    fields_v1: msgspec.Raw = _NO_FIELDS
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of an entry. Appliers are the same in all versions."""
        version = self.api_version if self.operation == UPDATE else ""
        return (self.manager, self.operation, version, self.subresource)

    @property
    def identity(self) -> bytes:
        """The key as Kubernetes sorts by it."""
        manager, operation, version, subresource = self.key
        return encode_json(Entry(manager, operation, version, subresource=subresource))


_EMPTY = Entry()
_decode_entries = json_decoder(list[Entry]).decode


def read_entries(raw: bytes) -> list[Entry]:
    """The entries that this server has stored."""
    return _decode_entries(raw)


def write_entries(entries: Iterable[Entry]) -> msgspec.Raw | None:
    """The list as it is stored, in Kubernetes' order; None when there is no entry."""
    ordered = list(entries)
    if len(ordered) > 1:
        ordered.sort(key=_order)
    return msgspec.Raw(encode_json(ordered)) if ordered else None


def _order(entry: Entry) -> tuple[str, ...]:
    return (entry.operation, entry.time or "", entry.manager, entry.api_version, entry.subresource)


def put(meta: Json, raw: msgspec.Raw | None) -> None:
    """Set the list of an object; None removes it."""
    meta.pop(MANAGED, None)
    if raw is not None:
        meta[MANAGED] = raw


def read_sent(sent: Any) -> list[Entry] | None:
    """The entries that a client has sent, none when it resets them; None: nothing usable."""
    if sent is None or type(sent) is not list:
        return None
    try:
        entries = _decode_entries(encode_json([entry or {} for entry in sent]))
        if not entries or entries == [_EMPTY]:
            return []
        by_key: dict[tuple[str, ...], Entry] = {}
        for entry in entries:
            if entry.operation not in (UPDATE, APPLY):
                raise FieldsError("operation must be `Apply` or `Update`")
            if not entry.api_version or entry.fields_type != "FieldsV1":
                raise FieldsError("apiVersion and fieldsType must be there")
            fields = read(decode_json(entry.fields_v1) or {})
            fields.pop(".", None)
            by_key[entry.key] = with_fields(entry, encode_sorted(fields))
        return list(by_key.values())
    except (msgspec.ValidationError, FieldsError):
        return None


def check_entries(call: Call, new: Json, entries: list[Entry]) -> None:
    """Raise `Invalid` for entries that a client has sent to be kept and that are invalid."""
    errors: list[FieldError] = []
    for index, entry in enumerate(entries):
        path = f"metadata.managedFields[{index}]"
        errors += check_manager(entry.manager, f"{path}.manager")
        if len(entry.subresource.encode()) > MAX_SUBRESOURCE_BYTES:
            errors.append(too_long(f"{path}.subresource", MAX_SUBRESOURCE_BYTES))
    if errors:
        definition = call.definition
        name = new["metadata"].get("name") or ""
        raise invalid_object(definition.group, definition.kind, name, errors)


def with_fields(entry: Entry, fields: bytes, time: str | None = None) -> Entry:
    """The entry with other fields, and at another time if one is given."""
    return msgspec.structs.replace(entry, fields_v1=msgspec.Raw(fields), time=time or entry.time)


def capped(entries: list[Entry]) -> list[Entry]:
    """Limit the number of updaters: the oldest of one version are merged under one name."""
    updaters = [entry for entry in entries if entry.operation == UPDATE]
    over = len(updaters) - MAX_UPDATERS
    if over <= 0:
        return entries
    oldest = defaultdict[str, list[Entry]](list)
    for entry in sorted(updaters, key=lambda entry: (entry.time or "", entry.identity)):
        if over <= 0:
            break
        of_version = oldest[entry.api_version]
        over -= 1 if of_version else 0  # the first of a version becomes the bucket of the others
        of_version.append(entry)
    by_key = {entry.key: entry for entry in entries}
    for first, *others in oldest.values():
        if others:
            _put_together(by_key, first, others)
    return list(by_key.values())


def _put_together(by_key: dict[tuple[str, str, str, str], Entry], first: Entry, others: list[Entry]) -> None:
    """Replace `others`, the latest last, by the bucket of their version: the existing one, or `first`."""
    key = (ANCIENT, UPDATE, first.api_version, "")
    bucket = by_key.get(key)
    if bucket is None:
        bucket = msgspec.structs.replace(by_key.pop(first.key), manager=ANCIENT, subresource="")
    fields = union_of([decode_json(entry.fields_v1) for entry in (bucket, *others)])
    for entry in others:
        by_key.pop(entry.key, None)
    by_key[key] = with_fields(bucket, encode_sorted(fields), others[-1].time)


def keep_times(new: Json, old: Json) -> None:
    """Restore the old times if nothing but the times of entries has changed: then nothing is written."""
    new_raw, old_raw = new["metadata"].get(MANAGED), old["metadata"].get(MANAGED)
    if type(new_raw) is not msgspec.Raw or type(old_raw) is not msgspec.Raw or new_raw == old_raw:
        return
    if new.keys() != old.keys():
        return
    for name, value in old.items():
        if name != "metadata" and new.get(name) != value:
            return
    if _timeless(new_raw) == _timeless(old_raw):
        put(new["metadata"], old_raw)


def _timeless(raw: bytes) -> list[Entry]:
    return [msgspec.structs.replace(entry, time=None) for entry in read_entries(raw)]
