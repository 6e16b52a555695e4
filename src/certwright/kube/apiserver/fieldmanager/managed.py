"""`metadata.managedFields`: the manager of each field, in any version of the kind, updated by every write.

On objects the value is `msgspec.Raw`, the bytes of the list, and always the last member of `metadata`
(objects.py): a write that changes no field passes it on undecoded.

Source: Kubernetes documentation, "Server-Side Apply"; apimachinery `pkg/util/managedfields`;
structured-merge-diff `merge/update.go` (changes in other versions).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import msgspec

from certwright.kube.api.errors import invalid_object
from certwright.kube.apiserver.base.json_values import Json, encode_sorted
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.fieldmanager.entries import (
    MAX_UPDATERS,
    NOTHING,
    UPDATE,
    Entry,
    capped,
    check_entries,
    put,
    read_entries,
    read_sent,
    with_fields,
    write_entries,
)
from certwright.kube.apiserver.fieldmanager.fieldpath import FieldsError, difference, reconciled, union
from certwright.kube.apiserver.fieldmanager.schema import ATOMIC, OBJECT_META, Type, type_of
from certwright.kube.apiserver.fieldmanager.typed import Comparison, check_typed, compare_objects
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json
from certwright.kube.apiserver.requests.bodies import check_manager


class NotConvertible(FieldsError):
    """An object has fields that another version of its kind, with field owners, lacks."""


def in_version(
    backend: Backend, definition: ResourceDefinition, api_version: str
) -> ResourceDefinition | None:
    """The kind in an entry's version; None when a built-in kind no longer has that version.

    Raises `NotConvertible` for a version that a custom resource does not have at all.
    """
    if api_version == definition.api_version:
        return definition
    group, _, version = api_version.rpartition("/")
    other = backend.registry.find(group, version, definition.plural)
    if other is None or other.bucket != definition.bucket:
        other = next((there for there in definition.unserved if there.api_version == api_version), None)
    if other is None and definition.custom:
        raise NotConvertible(f"request to convert CR to an invalid group/version: {api_version}")
    return other


def type_in_version(backend: Backend, definition: ResourceDefinition, api_version: str) -> Type | None:
    """The kind's type in that version; None when it no longer exists. Raises `NotConvertible`."""
    version_definition = in_version(backend, definition, api_version)
    return type_of(version_definition) if version_definition is not None else None


def converted(
    backend: Backend, there: ResourceDefinition, here: ResourceDefinition, obj: Json, what: str = ""
) -> Json:
    """An object in the version of `there`; `here` is that of the request.

    Without a conversion webhook the content is the same in all versions. Raises `NotConvertible` where it
    does not have the form of the other, with `what` before the reason.
    """
    if there is here and obj.get("apiVersion") == here.api_version:
        return obj
    try:
        converted_object = backend.in_version(there, obj)
        meta = {name: value for name, value in converted_object["metadata"].items() if name != MANAGED}
        check_typed(type_of(there), {**converted_object, "metadata": meta})
    except FieldsError as error:
        raise NotConvertible(f"{what}{error}") from None
    return converted_object


class Change:
    """The change of an object that a call makes, compared once for each version."""

    def __init__(self, backend: Backend, call: Call, old: Json, new: Json) -> None:
        self._backend = backend
        self._definition = call.definition
        self._subresource = call.route.subresource
        self._old = old
        self._new = new
        self._comparisons: dict[str, Comparison | None] = {}

    def check_old(self, api_versions: Iterable[str]) -> None:
        """Raise `NotConvertible` where the old object does not have the form of one of these versions."""
        for api_version in set(api_versions) - {self._definition.api_version}:
            there = in_version(self._backend, self._definition, api_version)
            if there is not None:
                converted(self._backend, there, self._definition, self._old)

    def compare_at(self, api_version: str) -> Comparison | None:
        """The changed fields in a version; None when that no longer exists.

        Raises `NotConvertible`.
        """
        if api_version in self._comparisons:
            return self._comparisons[api_version]
        comparison, here = None, self._definition
        if (there := in_version(self._backend, here, api_version)) is not None:
            old = converted(self._backend, there, here, self._old, "failed to convert old object: ")
            new = converted(self._backend, there, here, self._new, "failed to convert new object: ")
            comparison = compare(there, old, new, subresource=self._subresource)
        self._comparisons[api_version] = comparison
        return comparison


MAX_MANAGER_LENGTH: Final = 128

UNOWNED: Final = frozenset(
    {
        "name", "namespace", "creationTimestamp", "selfLink", "uid",
        "generation", "managedFields", "resourceVersion",
    }
)  # fmt: skip
"""The members of metadata without an owner: the server sets them or the path determines them."""
_OWNED = (
    "labels", "annotations", "finalizers", "ownerReferences", "generateName", "deletionTimestamp",
    "deletionGracePeriodSeconds",
)  # fmt: skip
_HEADS = frozenset({"apiVersion", "kind", "metadata"})
_HEADS_AND_SPEC = _HEADS | {"spec"}
_HEADS_AND_STATUS = _HEADS | {"status"}
_HEADS_AND_BOTH = _HEADS_AND_SPEC | {"status"}


# --- managers ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _from_user_agent(agent: str) -> str:
    """The part before the first slash, without unprintable characters, cut to the length of a manager."""
    name = "".join(mark for mark in agent.partition("/")[0] if mark.isprintable())
    while len(name.encode()) > MAX_MANAGER_LENGTH:
        name = name[:-1]
    return name or "unknown"


def manager_of(call: Call) -> str:
    """The manager of this call's changes. Raises `Invalid` for an invalid name."""
    named = call.query.get("fieldManager")
    if not named:
        return _from_user_agent(call.request.headers.get("user-agent", ""))
    if errors := check_manager(named):
        words = {"create": "CreateOptions", "update": "UpdateOptions"}
        raise invalid_object("meta.k8s.io", words.get(call.verb, "PatchOptions"), "", errors)
    return named


# --- updates ----------------------------------------------------------------------------------------------


def on_create(backend: Backend, call: Call, new: Json) -> None:
    """Assign all fields of a new object to its creator. An applied object has its managers already."""
    if call.verb != "create":
        return
    manager, meta = manager_of(call), new["metadata"]
    try:
        if call.definition.status_subresource and "status" in new:
            # It is not stored; but an object without its type's form has no managers at all.
            check_typed(type_of(call.definition).child("status") or ATOMIC, new["status"])
        comparison = compare(call.definition, None, new)
        if base := read_sent(meta.get(MANAGED)):
            change = Change(backend, call, blank(call.definition), new)
            entries = _updated(backend, call, base, change, comparison, manager)
            check_entries(call, new, entries)
        else:
            entries = _first(backend, call, comparison, manager)
        put(meta, write_entries(entries))
    except FieldsError:
        # The object is invalid, and its validation reports that with a better message.
        put(meta, None)


def on_update(backend: Backend, call: Call, new: Json, old: Json) -> None:
    """Update the managed fields in `new`, as sent, by its changes of `old`."""
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
        change = Change(backend, call, old, new)
        change.check_old([entry.api_version for entry in base])
        own = change.compare_at(call.definition.api_version)
        if own is not None and (own.touched or own.removed):
            base, kept = _updated(backend, call, base, change, own, manager), None
    if kept is not None:
        return kept
    base = [entry for entry in base if bytes(entry.fields_v1) != NOTHING]
    if is_sent:
        check_entries(call, new, base)
    return write_entries(base)


def _base(sent: Any, stored: msgspec.Raw | None) -> list[Entry] | None:
    """The entries that an update starts from where they are not the stored ones."""
    return None if sent is stored or type(sent) is msgspec.Raw else read_sent(sent)


def compare(
    definition: ResourceDefinition, old: Json | None, new: Json, *, subresource: str = ""
) -> Comparison:
    """The changed fields, without fields that this kind of write cannot change and fields without an
    owner."""
    hidden = _HEADS
    if definition.kind == "Namespace" and definition.group == "":
        # The server sets its finalizers.
        hidden = _HEADS_AND_BOTH
    elif subresource and definition.kind != "Scale":
        hidden = _HEADS_AND_SPEC
    elif definition.status_subresource:
        hidden = _HEADS_AND_STATUS
    if old is None:
        old = blank(definition)
    comparison = compare_objects(type_of(definition), old, new, hidden)
    before, after = old["metadata"], new["metadata"]
    if definition.is_crd and subresource:
        return comparison
    for name in _OWNED:
        if before.get(name) != after.get(name):
            comparison.add("f:metadata", compare_objects(OBJECT_META, before, after, UNOWNED))
            break
    return comparison


@lru_cache(maxsize=256)
def blank(definition: ResourceDefinition) -> Json:
    """An empty object with the fields that Go's structs of built-in kinds always have. Read only."""
    made: Json = {"apiVersion": definition.api_version, "kind": definition.kind, "metadata": {}}
    if definition.is_crd:
        made["spec"] = {"names": {}}
    elif not definition.custom:
        definition.schema.process(made)
    return made


def _updated(
    backend: Backend, call: Call, base: list[Entry], change: Change, comparison: Comparison, manager: str
) -> list[Entry]:
    """The entries after a change: touched fields belong to this manager only, removed ones to none."""
    version, subresource = call.definition.api_version, call.route.subresource
    entries: list[Entry] = []
    mine: Entry | None = None
    for entry in base:
        kind = type_in_version(backend, call.definition, entry.api_version)
        if kind is None:
            continue
        owned = reconciled(decode_json(entry.fields_v1), kind)
        if entry.key == (manager, UPDATE, version, subresource):
            owned = union(difference(owned, comparison.removed), comparison.touched)
            time = backend.timestamp() if comparison.touched else entry.time
            entry = mine = with_fields(entry, encode_sorted(owned), time)
        else:
            there = change.compare_at(entry.api_version) or comparison
            owned = difference(difference(owned, there.touched), there.removed)
            entry = with_fields(entry, encode_sorted(owned))
        if owned:
            entries.append(entry)
    if mine is None:
        entries += _first(backend, call, comparison, manager)
    return entries if len(entries) <= MAX_UPDATERS else capped(entries)


def _first(backend: Backend, call: Call, comparison: Comparison, manager: str) -> list[Entry]:
    """The entries after a change where no field had an owner before, or none belonged to this manager."""
    if not comparison.touched:
        return []
    return [new_entry(call, manager, UPDATE, encode_sorted(comparison.touched), backend.timestamp())]


def new_entry(call: Call, manager: str, operation: str, fields: bytes, time: str | None) -> Entry:
    """An entry of this call's manager."""
    version, subresource = call.definition.api_version, call.route.subresource
    return Entry(manager, operation, version, time, "FieldsV1", msgspec.Raw(fields), subresource)
