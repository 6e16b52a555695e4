"""Rules of `metadata`: types, validation, and which fields clients may change.

Source: Kubernetes API reference, ObjectMeta, OwnerReference and ManagedFieldsEntry v1 meta; apimachinery
`pkg/api/validation/objectmeta.go`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol

import msgspec

from certwright.kube.api import naming
from certwright.kube.api.errors import FieldError, forbidden, invalid, required
from certwright.kube.apiserver.base.json_values import Json, NotOfKind, mismatch, wrong_type
from certwright.kube.apiserver.base.object_names import NameRule, completed, problems
from certwright.kube.util.caches import remembering
from certwright.kube.util.decoders import convert
from certwright.kube.util.encoding import quoted

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


def _check_types(metadata: Json) -> None:
    """Raise `ValueError` unless all members have their types; nulls within them become empty values."""
    try:
        convert(metadata, _Metadata)
    except msgspec.ValidationError:
        _fill_nulls(metadata)
        try:
            convert(metadata, _Metadata)
        except msgspec.ValidationError as error:
            raise ValueError(mismatch(error, "metadata")) from None
    for name in _TIMES:
        if name in metadata and not _is_time(metadata[name]):
            raise ValueError(f"metadata.{name}: {_NO_TIME}")


def type_problem(metadata: Json) -> str:
    """The type error of metadata that `clean` has not normalized; empty where there is none."""
    try:
        _check_types(dict(metadata))
    except ValueError as error:
        return str(error)
    return ""


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
    """Whether the text is a time in RFC 3339 with a time zone."""
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1])
    except ValueError:
        return False
    return True


def _clean_entries(entries: Any) -> list[str]:
    """The paths of unknown members of `metadata.managedFields`, which are dropped. Raises `ValueError` for a
    wrong type."""
    path = f"metadata.{MANAGED}"
    try:
        typed_entries = convert(entries, list[_Entry | None])
    except msgspec.ValidationError as error:
        raise ValueError(mismatch(error, path)) from None
    if not all(entry is None or entry.time is None or _is_time(entry.time) for entry in typed_entries):
        raise ValueError(f"{path}: {_NO_TIME}")
    unknown: list[str] = []
    for index, entry in enumerate(entries):
        for name in sorted(set(entry or ()) - _ENTRY_MEMBERS):
            unknown.append(f"{path}[{index}].{name}")
            del entry[name]
    return unknown


_NO_TIME = "expected a time in RFC 3339, e.g. 2026-01-02T15:04:05Z"


class KindFacts(Protocol):
    """What the rules of metadata depend on. `custom`: the kind is defined by a CustomResourceDefinition."""

    @property
    def group(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def custom(self) -> bool: ...

    @property
    def name_rule(self) -> NameRule: ...


# Keys and values repeat; a valid one need not be checked twice.
@remembering(most=4096, longest=naming.MAX_SUBDOMAIN + 1 + naming.MAX_LABEL)
def _key_is_good(key: str) -> bool:
    return naming.check_label_key(key) is None


@remembering(most=4096, longest=naming.MAX_LABEL)
def _value_is_good(value: str) -> bool:
    return naming.check_label_value(value) is None


def clean(definition: KindFacts, obj: Json) -> list[str]:
    """Normalize `obj["metadata"]`: a dict with known members of the right types and without nulls.

    Returns the paths of unknown members, which are dropped. Raises `BadRequest` for wrong types.
    """
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    try:
        if type(metadata) is not dict:
            raise ValueError(wrong_type("metadata", "an object", metadata))
        unknown = _drop_unknown(metadata, MEMBERS, "metadata")
        _check_types(metadata)
        # Managed fields that a patch leaves alone are bytes, and read by managed.py.
        if (entries := metadata.get(MANAGED)) is not None and type(entries) is not msgspec.Raw:
            unknown += _clean_entries(entries)
    except ValueError as error:
        raise NotOfKind(definition.kind, definition.version, str(error)) from None
    if not all(metadata.values()):
        # Empty texts, lists and maps count as missing: ObjectMeta's members are "omitempty".
        for name in [name for name, value in metadata.items() if not value]:
            if name != "deletionGracePeriodSeconds":
                del metadata[name]
    for index, owner in enumerate(metadata.get("ownerReferences", ())):
        unknown += _drop_unknown(owner, OWNER_MEMBERS, f"metadata.ownerReferences[{index}]")
    return unknown


def _drop_unknown(members: Json, known: frozenset[str], path: str) -> list[str]:
    """Drop nulls, and members that are not `known`; returns the paths of the latter."""
    if members.keys() <= known and None not in members.values():
        return []
    unknown = [f"{path}.{name}" for name in members if name not in known]
    for name in [name for name, value in members.items() if value is None or name not in known]:
        del members[name]
    return unknown


_DEDUPS = (
    "; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; "
    "please fix your requests; duplicate UID(s) observed: "
)
DUPLICATE_OWNERS = f".metadata.ownerReferences contains duplicate entries{_DEDUPS}"
DUPLICATE_OWNERS_AFTER_ADMISSION = (
    f".metadata.ownerReferences contains duplicate entries after mutating admission happens{_DEDUPS}"
)


def drop_duplicate_owners(metadata: Json) -> list[str]:
    """Keep one of equal owner references; returns the uids of those dropped."""
    owners = metadata.get("ownerReferences")
    if not owners or len(owners) < 2:
        return []
    seen = {tuple(sorted(owner.items())): owner for owner in reversed(owners)}
    if len(seen) == len(owners):
        return []
    kept = {id(owner) for owner in seen.values()}
    dropped = [owner.get("uid", "") for owner in owners if id(owner) not in kept]
    metadata["ownerReferences"] = [owner for owner in owners if id(owner) in kept]
    return dropped


def check_name(definition: KindFacts, metadata: Json) -> list[FieldError]:
    """Check name and generateName against the kind's rule."""
    errors: list[FieldError] = []
    prefix, name = metadata.get("generateName", ""), metadata.get("name", "")
    if prefix:
        errors += [
            invalid("metadata.generateName", prefix, detail)
            for detail in problems(definition.name_rule, completed(prefix))
        ]
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    elif definition.name_rule(name):
        errors += [invalid("metadata.name", name, detail) for detail in problems(definition.name_rule, name)]
    return errors


def check(metadata: Json, definition: KindFacts | None = None) -> list[FieldError]:
    """Check labels, annotations, owner references, finalizers and generation; None: of an embedded object."""
    errors: list[FieldError] = []
    if metadata.get("generation", 0) < 0:
        detail = "must be greater than or equal to 0"
        errors.append(invalid("metadata.generation", metadata["generation"], detail))
    labels = metadata.get("labels")
    if labels and not (all(map(_key_is_good, labels)) and all(map(_value_is_good, labels.values()))):
        errors += naming.check_labels(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    # A character has four bytes at most, so the bytes are rarely counted.
    characters = sum(map(len, (*annotations, *annotations.values()))) if annotations else 0
    is_small = 4 * characters < naming.MAX_ANNOTATIONS_BYTES
    if annotations and not (all(map(_key_is_good, annotations)) and is_small):
        errors += naming.check_annotations(annotations, "metadata.annotations")
    if owners := metadata.get("ownerReferences"):
        errors += _check_owners(owners)
    if finalizers := metadata.get("finalizers"):
        errors += _check_finalizers(finalizers)
        if definition is not None and not definition.custom and definition.group in _CORE_RULES:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors += [
                invalid(f"metadata.finalizers[{index}]", name, text)
                for index, name in enumerate(finalizers)
                if "/" not in name and name not in _STANDARD_FINALIZERS
            ]
    return errors


def _check_owners(owners: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    first = ""
    for owner in owners:
        errors += _check_owner(owner)
        if owner.get("controller"):
            name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if first:
                text = 'Only one reference can have Controller set to true. Found "true" in references for '
                shown = [_shown_owner(each) for each in owners]
                errors.append(invalid(_OWNERS, shown, f"{text}{first} and {name}"))
            first = first or name
    return errors


def _shown_owner(owner: Json) -> Json:
    """The owner reference as Go prints its struct."""
    shown = {name: owner.get(name, "") for name in ("apiVersion", "kind", "name", "uid")}
    return shown | {name: owner[name] for name in ("controller", "blockOwnerDeletion") if name in owner}


_OWNERS = "metadata.ownerReferences"


def _check_owner(owner: Json) -> list[FieldError]:
    # Kubernetes does not report which of the references is wrong.
    version = owner.get("apiVersion", "")
    errors = []
    if not version or version.count("/") > 1 or version.endswith("/"):
        errors.append(invalid(f"{_OWNERS}.apiVersion", version, "version must not be empty"))
    errors += [
        invalid(f"{_OWNERS}.{name}", "", "must not be empty")
        for name in ("kind", "name", "uid")
        if not owner.get(name)
    ]
    if version == "v1" and owner.get("kind") == "Event":
        errors.append(
            invalid(_OWNERS, _shown_owner(owner), "/v1, Kind=Event is disallowed from being an owner")
        )
    return errors


_DELETES, _ORPHANS = "foregroundDeletion", "orphan"
_STANDARD_FINALIZERS = frozenset({_DELETES, _ORPHANS, "kubernetes"})
_CORE_RULES = frozenset({"", "rbac.authorization.k8s.io", "networking.k8s.io"})
"""Groups whose finalizers must be qualified; in other groups that is advice."""


def _check_finalizers(finalizers: list[str]) -> list[FieldError]:
    errors = [
        invalid("metadata.finalizers", finalizer, detail)
        for finalizer in finalizers
        for detail in naming.label_key_problems(finalizer)
    ]
    if _ORPHANS in finalizers and _DELETES in finalizers:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid("metadata.finalizers", finalizers, text))
    return errors


def warnings(definition: KindFacts, new: Json, old: Json | None) -> list[str]:
    """Warnings about the metadata of a custom resource: new finalizers without a domain."""
    finalizers = new.get("finalizers")
    if not finalizers or not definition.custom:
        return []
    messages: list[str] = []
    for name in sorted(set(finalizers) - set((old or {}).get("finalizers", ()))):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            more = " including a path (/)" if "." in name else ""
            messages.append(
                f"metadata.finalizers: {quoted(name)}: prefer a domain-qualified finalizer name{more} "
                "to avoid accidental conflicts with other finalizer writers"
            )
    return messages


def wipe(metadata: Json) -> None:
    """Remove what no client may set on create; Kubernetes keeps it in a server-side apply."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(name, None)


def begin(metadata: Json, *, uid: str, now: str, has_generation: bool) -> None:
    """Set the server's fields on create."""
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if has_generation:
        metadata["generation"] = 1


_KEPT_ON_UPDATE = ("name", "namespace", "uid", "creationTimestamp", "generation")
_GRACE = "deletionGracePeriodSeconds"


def carry_over(new: Json, old: Json) -> None:
    """Keep the server's fields on update, also where the client sent others."""
    for name in _KEPT_ON_UPDATE:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)
    if "deletionTimestamp" in old:
        new["deletionTimestamp"] = old["deletionTimestamp"]
    if _GRACE in old:
        new.setdefault(_GRACE, old[_GRACE])


def check_update(new: Json, old: Json) -> list[FieldError]:
    """Reject forbidden updates: to begin or change a deletion, or to add finalizers once it has begun."""
    errors: list[FieldError] = []
    if (time := new.get("deletionTimestamp")) and time != old.get("deletionTimestamp"):
        # As Kubernetes writes it: UTC, whole seconds.
        moment = datetime.fromisoformat(time.replace(",", ".")).astimezone(UTC)
        shown = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        errors.append(invalid("metadata.deletionTimestamp", shown, "field is immutable"))
    if _GRACE in new and new[_GRACE] != old.get(_GRACE):
        errors.append(invalid(f"metadata.{_GRACE}", new[_GRACE], "field is immutable"))
    if "deletionTimestamp" in old:
        added = sorted(set(new.get("finalizers", ())) - set(old.get("finalizers", ())))
        if added:
            text = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{', '.join(map(quoted, added))}}}"
            )
            errors.append(forbidden("metadata.finalizers", text))
    return errors
