"""Server-side apply: an applier owns exactly the fields of its configuration.

Source: Kubernetes documentation, "Server-Side Apply"; KEP-555; structured-merge-diff `merge/update`;
apimachinery `pkg/util/managedfields`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from certwright.kube.api import manifests
from certwright.kube.api.errors import ApiError, BadRequest, Cause, Conflict, Details, InternalError
from certwright.kube.apiserver.base.json_values import Json, encode_sorted, same, wrong_type
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.fieldmanager import managed
from certwright.kube.apiserver.fieldmanager.entries import (
    APPLY,
    UPDATE,
    Entry,
    put,
    read_entries,
    with_fields,
    write_entries,
)
from certwright.kube.apiserver.fieldmanager.fieldpath import (
    FieldsError,
    Node,
    difference,
    intersection,
    paths,
    reconciled,
    union,
    with_named_fields,
)
from certwright.kube.apiserver.fieldmanager.managed import (
    Change,
    NotConvertible,
    converted,
    in_version,
    type_in_version,
)
from certwright.kube.apiserver.fieldmanager.schema import Type, type_of
from certwright.kube.apiserver.fieldmanager.typed import (
    check_typed,
    compare_objects,
    merge,
    remove_items,
    to_field_set,
)
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.model.routes import is_true
from certwright.kube.apiserver.requests import bodies

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_BEFORE_FIRST_APPLY = "before-first-apply"
_KUBECTL = "kubectl"
_MAX_ANNOTATIONS_BYTES = 256 * 1024
_SERVER_SET = frozenset({".", *(f"f:{name}" for name in managed.UNOWNED)})


class FieldConflict(NamedTuple):
    """Fields to which the configuration gives other values than their manager."""

    owner: Entry
    fields: Node


class Conflicts(Exception):
    """The conflicts of an apply that does not force its values."""

    def __init__(self, conflicts: list[FieldConflict]) -> None:
        super().__init__("conflicts")
        self.conflicts = conflicts

    def as_error(self) -> Conflict:
        """The 409 that names each field and its owner."""
        ordered = sorted(self.conflicts, key=lambda conflict: conflict.owner.identity)
        single = [(_shown_manager(owner), path) for owner, fields in ordered for path in paths(fields)]
        causes = tuple(
            Cause(reason="FieldManagerConflict", message=f"conflict with {manager}", field=path)
            for manager, path in single
        )
        if len(single) == 1:
            text = f"Apply failed with 1 conflict: conflict with {single[0][0]}: {single[0][1]}"
        else:
            lines = list[str]()
            for owner, fields in ordered:
                lines += [
                    f"conflicts with {_shown_manager(owner)}:",
                    *(f"- {path}" for path in paths(fields)),
                ]
            text = f"Apply failed with {len(single)} conflicts: " + "\n".join(lines)
        return Conflict(text, details=Details(causes=causes))


def _shown_manager(owner: Entry) -> str:
    text = encode_json(owner.manager).decode()
    if owner.subresource:
        text += f" with subresource {encode_json(owner.subresource).decode()}"
    return f"{text} using {owner.api_version}" if owner.operation == UPDATE else text


class VersionedSet(NamedTuple):
    """The fields of a manager, in the version of its entry."""

    entry: Entry
    fields: Node


ManagedFields = dict[tuple[str, str, str, str], VersionedSet]


class Configuration(NamedTuple):
    """The applied configuration, and its duplicate keys."""

    value: Json
    repeats: list[manifests.Repeat]


def read_configuration(call: Call) -> Configuration:
    """The applied configuration. Raises `BadRequest`."""
    try:
        value, repeats = manifests.read_first(call.request.body)
    except ValueError as error:
        raise BadRequest(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    if value is not None and type(value) is not dict:
        raise BadRequest(f"error decoding YAML: {wrong_type('the configuration', 'an object', value)}")
    config: Json = value or {}
    _check_type(call, config)
    meta = config.get("metadata")
    owners = meta.get(MANAGED) if type(meta) is dict else None
    # Anything else has no valid managed fields, which the next step reports.
    if type(owners) is list and all(type(entry) is dict for entry in owners):
        raise BadRequest("metadata.managedFields must be nil")
    return Configuration(config, repeats)


def _note_repeats(call: Call, repeats: list[manifests.Repeat]) -> None:
    """Refuse duplicate keys, or warn of them, as the client requests: after all other checks."""
    if not repeats:
        return
    texts = [f"line {line}: key {encode_json(key).decode()} already set in map" for line, key in repeats]
    strictness = bodies.field_validation(call)
    if strictness == "Strict":
        lines = "\n  ".join(["error converting YAML to JSON: yaml: unmarshal errors:", *texts])
        raise BadRequest(f"error strict decoding YAML: {lines}")
    if strictness == "Warn":
        call.warnings += [text for text in texts if text not in call.warnings]


def _check_type(call: Call, config: Json) -> None:
    definition = call.definition
    version, kind = config.get("apiVersion"), config.get("kind")
    if version == definition.api_version and kind == definition.kind:
        return
    version, kind = version if type(version) is str else "", kind if type(kind) is str else ""
    if version.count("/") > 1:
        version = kind = ""
    shown = version if "/" in version else f"/{version}"
    raise BadRequest(f"invalid object type: {shown}, Kind={kind}")


def apply(backend: Backend, call: Call, configuration: Configuration, live: Json | None) -> Json:
    """`live` with the configuration applied and its managed fields updated. The options have been checked.

    `live` None: the object does not exist yet. Raises `Conflict` if other managers own fields with other
    values, unless the call forces it, and `InternalError` (as Kubernetes does) for a configuration that does
    not match the schema.
    """
    manager, force, config = call.query["fieldManager"], is_true(call.query, "force"), configuration.value
    work = Updater(backend, call, config, live)
    try:
        try:
            new = work.run(manager, force=force)
        except Conflicts as conflicts:
            new = work.after_conflicts(manager, conflicts)
    except NotConvertible as error:
        raise _unexpected(str(error)) from None
    except FieldsError as error:
        definition, meta = call.definition, config.get("metadata")
        meta = meta if type(meta) is dict else {}
        namespace, name = (
            text if type(text := meta.get(key)) is str else "" for key in ("namespace", "name")
        )
        where = f"{namespace}/{name}; {definition.api_version}, Kind={definition.kind}"
        raise _unexpected(f"failed to create typed patch object ({where}): {error}") from None
    if not new["metadata"].get("name"):
        raise BadRequest(
            f"the name of the object ({call.route.name} based on URL) was undeterminable: "
            "name must be provided"
        )
    _note_repeats(call, configuration.repeats)
    return new


def _unexpected(text: str) -> ApiError:
    failure = InternalError(text)
    failure.reason = ""
    return failure


class Updater:
    """Applies one configuration to an object (structured-merge-diff `merge.Updater`)."""

    def __init__(self, backend: Backend, call: Call, config: Json, live: Json | None) -> None:
        self.backend = backend
        self.call = call
        self.config = config
        self.live = managed.blank(call.definition) if live is None else live
        self.created = live is None
        self.kind = type_of(call.definition)

    def run(self, manager: str, *, force: bool) -> Json:
        """The merged object. Raises `Conflicts` and `FieldsError`."""
        owners = self._managed_fields()
        Change(self.backend, self.call, self.live, self.live).check_old(
            owned.entry.api_version for owned in owners.values()
        )
        key = (manager, APPLY, "", self.call.route.subresource)
        check_typed(self.kind, self.config)
        merged = merge(self.kind, _plain(self.live), self.config)
        if merged.get("metadata") is None:
            merged["metadata"] = {}
        last = owners.get(key)
        # The fields that the configuration claims, without those that this kind of write cannot change.
        claimed = to_field_set(self.kind, self.config)
        if self.call.route.subresource and self.call.definition.kind != "Scale":
            claimed.pop("f:spec", None)
        elif self.call.definition.status_subresource:
            claimed.pop("f:status", None)
        entry = managed.new_entry(self.call, manager, APPLY, b"", last.entry.time if last else None)
        owners[key] = VersionedSet(entry, claimed)
        if last is not None and last.fields:
            merged = self._prune(merged, owners, last)
        # Changed fields belong to this manager only, removed ones to none.
        change = Change(self.backend, self.call, self.live, merged)
        conflicts: list[FieldConflict] = []
        for name, owned in list(owners.items()):
            comparison = change.compare_at(owned.entry.api_version) if name != key else None
            if comparison is None:
                continue
            if lost := intersection(owned.fields, comparison.touched):
                conflicts.append(FieldConflict(owned.entry, lost))
            left = difference(difference(owned.fields, lost), comparison.removed)
            owners[name] = VersionedSet(owned.entry, left)
        if conflicts and not force:
            raise Conflicts(conflicts)
        return self._write(owners, key, merged, manager)

    def _managed_fields(self) -> ManagedFields:
        """The managers of the stored object. Without any, its fields belong to `before-first-apply`."""
        raw = self.live["metadata"].get(MANAGED)
        owners: ManagedFields = {}
        for entry in read_entries(raw) if raw is not None else ():
            kind = type_in_version(self.backend, self.call.definition, entry.api_version)
            if kind is not None:
                owners[entry.key] = VersionedSet(entry, reconciled(decode_json(entry.fields_v1), kind))
        if not owners and not self.created:
            fields = managed.compare(
                self.call.definition, None, self.live, subresource=self.call.route.subresource
            )
            entry = managed.new_entry(self.call, _BEFORE_FIRST_APPLY, UPDATE, b"", self.backend.timestamp())
            if fields.touched:
                owners[entry.key] = VersionedSet(entry, fields.touched)
        return owners

    def _prune(self, merged: Json, owners: ManagedFields, last: VersionedSet) -> Json:
        """`merged` without fields that the applier no longer applies and no other manager owns."""
        kind = type_in_version(self.backend, self.call.definition, last.entry.api_version)
        if kind is None:
            return merged
        there = self._convert(merged, last.entry.api_version, "to last applied version")
        lasts = with_named_fields(last.fields, kind)
        pruned = self._add_back_owned_items(there, remove_items(kind, there, lasts), owners, last)
        pruned = self._convert(pruned, last.entry.api_version, "to last applied version")
        gone = intersection(difference(_field_set(kind, there), _field_set(kind, pruned)), lasts)
        return self._convert(remove_items(kind, there, gone), self.call.definition.api_version, "back")

    def _add_back_owned_items(
        self, merged: Json, pruned: Json, owners: ManagedFields, last: VersionedSet
    ) -> Json:
        """`pruned`, and the fields of `merged` with an owner in any version."""
        by_version: dict[str, Node] = {}
        for owned in owners.values():
            version = owned.entry.api_version
            by_version[version] = union(by_version.get(version, {}), owned.fields)
        for version in sorted(by_version, key=lambda version: version != last.entry.api_version):
            there = type_in_version(self.backend, self.call.definition, version)
            if there is not None:
                merged, pruned = (
                    self._convert(obj, version, f"at version {version}") for obj in (merged, pruned)
                )
                kept = union(_field_set(there, pruned), with_named_fields(by_version[version], there))
                pruned = remove_items(there, merged, difference(_field_set(there, merged), kept))
        return pruned

    def _convert(self, obj: Json, api_version: str, where: str) -> Json:
        """The merged object in another version; unchanged if that version is not served."""
        there = in_version(self.backend, self.call.definition, api_version)
        if there is None:
            return obj
        text = f"failed to prune fields: failed to convert merged object {where}: "
        return converted(self.backend, there, self.call.definition, obj, text)

    def _write(
        self, owners: ManagedFields, key: tuple[str, str, str, str], merged: Json, manager: str
    ) -> Json:
        changed = self.created or not same(merged, _plain(self.live))
        entries = []
        for name, owned in owners.items():
            fields = _ownable(owned.fields) if name == key else owned.fields
            if fields:
                time = self.backend.timestamp() if name == key and changed else None
                entries.append(with_fields(owned.entry, encode_sorted(fields), time))
        # A copy: parts belong to the live object, and the next steps change the new one in place.
        new: Json = decode_json(encode_json(merged))
        put(new["metadata"], write_entries(entries))
        if manager == _KUBECTL:
            _write_last_applied(new, self.config)
        return new

    # --- kubectl ------------------------------------------------------------------------------------------

    def after_conflicts(self, manager: str, conflicts: Conflicts) -> Json:
        """Fields applied by client-side apply of kubectl belong to it: no conflict. Raises `Conflict`."""
        if manager != _KUBECTL:
            raise conflicts.as_error()
        allowed = self._last_applied_fields()
        left = [FieldConflict(owner, difference(fields, allowed)) for owner, fields in conflicts.conflicts]
        if left := [conflict for conflict in left if conflict.fields]:
            raise Conflicts(left).as_error()
        return self.run(manager, force=True)

    def _last_applied_fields(self) -> Node:
        """The fields that kubectl's last client-side apply has set and that are unchanged."""
        text = (self.live["metadata"].get("annotations") or {}).get(LAST_APPLIED, "")
        try:
            last = decode_json(text.encode()) if text else None
            if type(last) is not dict or last.get("apiVersion") != self.call.definition.api_version:
                return {}
            check_typed(self.kind, last)
            comparison = compare_objects(self.kind, last, _plain(self.live))
            fields = to_field_set(self.kind, last)
            return difference(difference(fields, comparison.touched), comparison.removed)
        except (msgspec.DecodeError, FieldsError):
            return {}


def _ownable(fields: Node) -> Node:
    """A set without unowned fields: those that the server sets or the path determines."""
    left = {
        name: node for name, node in fields.items() if name not in ("f:apiVersion", "f:kind", "f:metadata")
    }
    meta = {name: node for name, node in fields.get("f:metadata", {}).items() if name not in _SERVER_SET}
    return {"f:metadata": meta, **left} if meta else left


def _field_set(kind: Type, value: Any) -> Node:
    return with_named_fields(to_field_set(kind, value), kind)


def _plain(live: Json) -> Json:
    return {**live, "metadata": {name: value for name, value in live["metadata"].items() if name != MANAGED}}


def _write_last_applied(new: Json, config: Json) -> None:
    """Update kubectl's last-applied annotation, if present, for a later client-side apply."""
    annotations = new["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    meta = dict(config.get("metadata") or {})
    if LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {key: item for key, item in meta["annotations"].items() if key != LAST_APPLIED}
    text = msgspec.json.encode({**config, "metadata": meta}, order="sorted").decode() + "\n"
    changed = {**annotations, LAST_APPLIED: text}
    if sum(len(key) + len(item.encode()) for key, item in changed.items()) > _MAX_ANNOTATIONS_BYTES:
        del changed[LAST_APPLIED]
    new["metadata"]["annotations"] = changed
