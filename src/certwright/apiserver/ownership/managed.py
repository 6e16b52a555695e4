"""`metadata.managedFields`: who has set which field, brought up to date with every write.

On objects the value is `msgspec.Raw`, the bytes of the list, and always the last member of `metadata`
(objects.py): a write that changes no field passes it on unread, and what is computed is kept by its bytes, as
objects of one kind change in the same few ways.

Source: Kubernetes documentation, "Server-Side Apply"; apimachinery `pkg/util/managedfields`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from certwright.apiserver.backend import Backend, Call
from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.objects import MANAGED, Json, decode_json, encode_json
from certwright.apiserver.ownership.fields_check import check_typed
from certwright.apiserver.ownership.fields_set import (
    FieldsError,
    Node,
    difference,
    read,
    reconciled,
    union,
)
from certwright.apiserver.ownership.fields_type import ATOMIC, OBJECT_META, Type, type_of
from certwright.apiserver.ownership.fields_walk import Comparison, compare_maps
from certwright.apiserver.ownership.versions import Change, type_in_version
from certwright.apiserver.verbs.options import check_manager
from certwright.resources.errors import FieldError, invalid_object, too_long

MAX_UPDATERS: Final = 10
"""How many entries of updates an object has; older ones are put together."""
ANCIENT: Final = "ancient-changes"
MAX_MANAGER_LENGTH: Final = 128
MAX_SUBRESOURCE_BYTES: Final = 256
UPDATE: Final = "Update"
APPLY: Final = "Apply"

UNOWNED: Final = frozenset(
    {
        "name", "namespace", "creationTimestamp", "selfLink", "uid",
        "generation", "managedFields", "resourceVersion",
    }
)  # fmt: skip
"""The members of metadata that nobody owns, as the server sets them or the path says them."""
_OWNED = (
    "labels", "annotations", "finalizers", "ownerReferences", "generateName", "deletionTimestamp",
    "deletionGracePeriodSeconds",
)  # fmt: skip
_HEADS = frozenset({"apiVersion", "kind", "metadata"})
_HEADS_AND_SPEC = _HEADS | {"spec"}
_HEADS_AND_STATUS = _HEADS | {"status"}
_HEADS_AND_BOTH = _HEADS_AND_SPEC | {"status"}
_KEPT = 4096  # results of set operations that are remembered: about 1 KB each
_sorted_json = msgspec.json.Encoder(order="deterministic").encode


_NOTHING = b"{}"
_NO_FIELDS = msgspec.Raw(_NOTHING)


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
        """What makes it an entry of its own. Appliers are the same in all versions."""
        version = self.api_version if self.operation == UPDATE else ""
        return (self.manager, self.operation, version, self.subresource)

    @property
    def identity(self) -> bytes:
        """The key as Kubernetes sorts by it."""
        manager, operation, version, subresource = self.key
        return encode_json(Entry(manager, operation, version, subresource=subresource))


_EMPTY = Entry()
_decode_entries = msgspec.json.Decoder(list[Entry]).decode


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
    """Set the list of an object, None: take it away."""
    meta.pop(MANAGED, None)
    if raw is not None:
        meta[MANAGED] = raw


# --- who writes -------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _from_user_agent(agent: str) -> str:
    """The part before the first slash, without what cannot be printed, cut to the length of a manager."""
    name = "".join(mark for mark in agent.partition("/")[0] if mark.isprintable())
    while len(name.encode()) > MAX_MANAGER_LENGTH:
        name = name[:-1]
    return name or "unknown"


def manager_of(call: Call) -> str:
    """Who this call's changes are owned by. Raises `Invalid` for a name that cannot be one."""
    named = call.query.get("fieldManager")
    if not named:
        return _from_user_agent(call.request.headers.get("user-agent", ""))
    if errors := check_manager(named):
        words = {"create": "CreateOptions", "update": "UpdateOptions"}
        raise invalid_object("meta.k8s.io", words.get(call.verb, "PatchOptions"), "", errors)
    return named


# --- updates ----------------------------------------------------------------------------------------------


def on_create(backend: Backend, call: Call, new: Json) -> None:
    """Give all fields of a new object to its creator. An object that was applied has its owners already."""
    if call.verb != "create":
        return
    manager, meta = manager_of(call), new["metadata"]
    try:
        if call.definition.status_subresource and "status" in new:
            # It is not kept; but what does not have the form of its type has no owners at all.
            check_typed(type_of(call.definition).child("status") or ATOMIC, new["status"])
        found = compare(call.definition, None, new)
        if base := _sent(meta.get(MANAGED)):
            change = change_of(backend, call, blank(call.definition), new)
            entries = _updated(backend, call, base, change, found, manager)
            _check_entries(call, new, entries)
        else:
            entries = _first(backend, call, found, manager)
        put(meta, write_entries(entries))
    except FieldsError:
        # The object is wrong, as its validation will say in better words.
        put(meta, None)


def on_update(backend: Backend, call: Call, new: Json, old: Json) -> None:
    """Bring the owners in `new`, as it was sent, up to date with what it changes of `old`."""
    manager, meta = manager_of(call), new["metadata"]
    try:
        put(meta, _brought_up_to_date(backend, call, new, old, manager))
    except FieldsError:
        put(meta, None)


def _brought_up_to_date(
    backend: Backend, call: Call, new: Json, old: Json, manager: str
) -> msgspec.Raw | None:
    stored: msgspec.Raw | None = old["metadata"].get(MANAGED)
    base = None if call.route.subresource else _base(new["metadata"].get(MANAGED, stored), stored)
    is_sent = base is not None
    if base is None:
        base, kept = (read_entries(stored) if stored else []), stored
    else:
        base = [entry for entry in base if type_in_version(backend, call.definition, entry.api_version)]
        kept = None
    if base:
        change = change_of(backend, call, old, new)
        change.check_old([entry.api_version for entry in base])
        own = change.seen_in(call.definition.api_version)
        if own is not None and (own.touched or own.removed):
            base, kept = _updated(backend, call, base, change, own, manager), None
    if kept is not None:
        return kept
    base = [entry for entry in base if bytes(entry.fields_v1) != _NOTHING]
    if is_sent:
        _check_entries(call, new, base)
    return write_entries(base)


def change_of(backend: Backend, call: Call, old: Json, new: Json) -> Change:
    """The change that a call makes, in any version."""
    subresource = call.route.subresource

    def seen(there: ResourceDefinition, before: Json, after: Json) -> Comparison:
        return compare(there, before, after, subresource=subresource)

    return Change(backend, call.definition, old, new, seen)


def _base(sent: Any, stored: msgspec.Raw | None) -> list[Entry] | None:
    """The entries that an update starts from where they are not the stored ones."""
    return None if sent is stored or type(sent) is msgspec.Raw else _sent(sent)


def _sent(sent: Any) -> list[Entry] | None:
    """The entries that a client has sent, none when it wants them reset; None: it has sent nothing usable."""
    if sent is None or type(sent) is not list:
        return None
    try:
        entries = _decode_entries(encode_json([entry or {} for entry in sent]))
        if not entries or entries == [_EMPTY]:
            return []
        return _canonical(entries)
    except (msgspec.ValidationError, FieldsError):
        return None


def _check_entries(call: Call, new: Json, entries: list[Entry]) -> None:
    """Raise `Invalid` for entries that are to stay, as a client has sent them, and that nobody can have."""
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


def _canonical(entries: list[Entry]) -> list[Entry]:
    found: dict[tuple[str, ...], Entry] = {}
    for entry in entries:
        if entry.operation not in (UPDATE, APPLY):
            raise FieldsError("operation must be `Apply` or `Update`")
        if not entry.api_version or entry.fields_type != "FieldsV1":
            raise FieldsError("apiVersion and fieldsType must be there")
        fields = read(decode_json(entry.fields_v1) or {})
        fields.pop(".", None)
        found[entry.key] = with_fields(entry, _sorted_json(fields))
    return list(found.values())


def with_fields(entry: Entry, fields: bytes, time: str | None = None) -> Entry:
    """The entry with other fields, and at another time if one is given."""
    return msgspec.structs.replace(entry, fields_v1=msgspec.Raw(fields), time=time or entry.time)


def compare(
    definition: ResourceDefinition, old: Json | None, new: Json, *, subresource: str = ""
) -> Comparison:
    """What has changed, less what this kind of write cannot change and what nobody owns."""
    hidden = _HEADS
    if definition.kind == "Namespace" and definition.group == "":
        # Its finalizers are set by the server.
        hidden = _HEADS_AND_BOTH
    elif subresource and definition.kind != "Scale":
        hidden = _HEADS_AND_SPEC
    elif definition.status_subresource:
        hidden = _HEADS_AND_STATUS
    if old is None:
        old = blank(definition)
    found = compare_maps(type_of(definition), old, new, hidden)
    before, after = old["metadata"], new["metadata"]
    if definition.is_crd and subresource:
        return found
    for name in _OWNED:
        if before.get(name) != after.get(name):
            found.add("f:metadata", compare_maps(OBJECT_META, before, after, UNOWNED))
            break
    return found


@lru_cache(maxsize=256)
def blank(definition: ResourceDefinition) -> Json:
    """An object with nothing in it but what Go's structs of built-in kinds always have. Read only."""
    made: Json = {"apiVersion": definition.api_version, "kind": definition.kind, "metadata": {}}
    if definition.is_crd:
        made["spec"] = {"names": {}}
    elif not definition.custom:
        definition.schema.process(made)
    return made


def _updated(
    backend: Backend, call: Call, base: list[Entry], change: Change, found: Comparison, manager: str
) -> list[Entry]:
    """The entries after a change: what it touched is the manager's alone, what it removed is nobody's."""
    touched, removed = _members_of(found.touched), _members_of(found.removed)
    version, subresource = call.definition.api_version, call.route.subresource
    here = type_of(call.definition)
    entries: list[Entry] = []
    mine: Entry | None = None
    for entry in base:
        other = entry.api_version != version
        kind = type_in_version(backend, call.definition, entry.api_version) if other else here
        if kind is None:
            continue
        if (
            entry.manager == manager
            and entry.operation == UPDATE
            and entry.subresource == subresource
            and not other
        ):
            fields = _more(kind, bytes(entry.fields_v1), touched, removed)
            time = backend.timestamp() if found.touched else entry.time
            mine = Entry(manager, UPDATE, version, time, "FieldsV1", msgspec.Raw(fields), subresource)
            if fields != _NOTHING:
                entries.append(mine)
            continue
        before = bytes(entry.fields_v1)
        if other:
            there = change.seen_in(entry.api_version) or found
            left = _less(kind, before, _members_of(there.touched), _members_of(there.removed))
        else:
            left = _less(kind, before, touched, removed)
        if left != _NOTHING:
            entries.append(entry if left == before else with_fields(entry, left))
    if mine is None:
        entries += _first(backend, call, found, manager)
    return entries if len(entries) <= MAX_UPDATERS else _capped(entries)


def _first(backend: Backend, call: Call, found: Comparison, manager: str) -> list[Entry]:
    """The entries after a change where nobody has owned anything yet, or this manager nothing."""
    if not found.touched:
        return []
    return [new_entry(call, manager, UPDATE, _sorted_json(found.touched), backend.timestamp())]


def new_entry(call: Call, manager: str, operation: str, fields: bytes, time: str | None) -> Entry:
    """An entry of this call's manager."""
    version, subresource = call.definition.api_version, call.route.subresource
    return Entry(manager, operation, version, time, "FieldsV1", msgspec.Raw(fields), subresource)


_Members = Mapping[str, bytes]
"""The nodes of an object's own members (`f:metadata`, `f:spec`, …), each by itself: what is set of the
metadata differs from object to object, the rest is the same for many."""
_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _members_of(fields: Node) -> _Members:
    return {name: _sorted_json(node) for name, node in fields.items()}


def _less(kind: Type, fields: bytes, touched: _Members, removed: _Members) -> bytes:
    """The fields that were neither touched nor removed."""
    found: dict[str, msgspec.Raw] = {}
    for name, part in _read_members(fields).items():
        left = _member_less(kind, name, bytes(part), touched.get(name, b""), removed.get(name, b""))
        if left is not None:
            found[name] = left
    return _sorted_json(found)


def _more(kind: Type, fields: bytes, touched: _Members, removed: _Members) -> bytes:
    """The fields that were not removed, and those that were touched."""
    found = {name: msgspec.Raw(more) for name, more in touched.items()}
    for name, part in _read_members(fields).items():
        left = _member_less(kind, name, bytes(part), b"", removed.get(name, b""))
        if left is not None:
            found[name] = _member_more(name, bytes(left), touched[name]) if name in touched else left
    return _sorted_json(found)


@lru_cache(maxsize=_KEPT)
def _member_less(kind: Type, name: str, part: bytes, *others: bytes) -> msgspec.Raw | None:
    """What is left of a member without what is in the `others`; None: nothing."""
    left = reconciled({name: decode_json(part)}, kind)
    for other in others:
        if other:
            left = difference(left, {name: decode_json(other)})
    return msgspec.Raw(_sorted_json(left[name])) if name in left else None


@lru_cache(maxsize=_KEPT)
def _member_more(name: str, part: bytes, other: bytes) -> msgspec.Raw:
    both = union({name: decode_json(part)}, {name: decode_json(other)})
    return msgspec.Raw(_sorted_json(both[name]))


def _plus(fields: bytes, others: bytes) -> bytes:
    return _sorted_json(union(decode_json(fields), decode_json(others)))


def _capped(entries: list[Entry]) -> list[Entry]:
    """At most so many updaters: the oldest of one version are put together under one name."""
    updaters = [entry for entry in entries if entry.operation == UPDATE]
    over = len(updaters) - MAX_UPDATERS
    if over <= 0:
        return entries
    found = {entry.key: entry for entry in entries}
    first: dict[str, Entry] = {}
    for entry in sorted(updaters, key=lambda entry: (entry.time or "", entry.identity)):
        if over <= 0:
            break
        if entry.api_version not in first:
            first[entry.api_version] = entry
            continue
        _put_together(found, first[entry.api_version], entry)
        over -= 1
    return list(found.values())


def _put_together(found: dict[tuple[str, str, str, str], Entry], first: Entry, entry: Entry) -> None:
    key = (ANCIENT, UPDATE, entry.api_version, "")
    bucket = found.get(key)
    if bucket is None:
        bucket = found.pop(first.key)
        bucket = msgspec.structs.replace(bucket, manager=ANCIENT, subresource="")
    fields = _plus(bytes(bucket.fields_v1), bytes(entry.fields_v1))
    found.pop(entry.key, None)
    found[key] = with_fields(bucket, fields, entry.time)


# --- times ------------------------------------------------------------------------------------------------


def keep_times(new: Json, old: Json) -> None:
    """Where nothing but the times of entries has changed, put the old ones back: then nothing is written."""
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
