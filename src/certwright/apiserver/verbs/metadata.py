"""What every object's `metadata` may hold, and who may change which part of it.

Source: Kubernetes API reference, ObjectMeta v1 meta; apimachinery `pkg/api/validation/objectmeta.go`.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.objects import MANAGED, Json
from certwright.apiserver.verbs.names import for_prefix
from certwright.resources import naming
from certwright.resources.errors import BadRequest, FieldError, forbidden, invalid

# Keys and values come again and again; what was good once need not be looked at twice.
_key_is_good = lru_cache(maxsize=4096)(lambda key: naming.check_label_key(key) is None)
_value_is_good = lru_cache(maxsize=4096)(lambda value: naming.check_label_value(value) is None)


class _OwnerShape(msgspec.Struct):
    apiVersion: str = ""  # noqa: N815 - these structs only check types, under the names of the wire
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None  # noqa: N815


class _MetadataShape(msgspec.Struct):
    name: str = ""
    generateName: str = ""  # noqa: N815
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815
    generation: int = 0
    creationTimestamp: str = ""  # noqa: N815
    deletionTimestamp: str = ""  # noqa: N815
    deletionGracePeriodSeconds: int = 0  # noqa: N815
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    ownerReferences: list[_OwnerShape] = []  # noqa: N815
    finalizers: list[str] = []


# managedFields is read by managed.py: it is bytes in a patched object.
_KNOWN = frozenset({*_MetadataShape.__struct_fields__, MANAGED})
# Members that clients may send and that this server does not keep.
_DROPPED = frozenset({"selfLink"})
_OWNER_FIELDS = frozenset(_OwnerShape.__struct_fields__)


def clean(definition: ResourceDefinition, obj: Json) -> list[str]:
    """Bring `obj["metadata"]` into shape: a dict with known members of the right types and without nulls.

    Returns the paths of members nobody knows, which are dropped. Raises `BadRequest` for wrong types.
    """
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    if type(metadata) is not dict:
        raise _unreadable(definition, "metadata must be an object")
    unknown = _drop_unknown(metadata)
    if type(metadata.get(MANAGED, [])) not in (list, msgspec.Raw):
        raise _unreadable(definition, "metadata.managedFields must be a list")
    try:
        msgspec.convert(metadata, _MetadataShape)
    except msgspec.ValidationError as error:
        raise _unreadable(definition, str(error).replace("`$", "`metadata")) from None
    if not all(metadata.values()):
        _drop_empty(metadata)
    if metadata.get("ownerReferences"):
        unknown += _clean_owners(metadata["ownerReferences"])
    return unknown


def type_problem(metadata: Json) -> str:
    """What is wrong with the types of metadata that nobody has cleaned; empty where nothing is."""
    try:
        msgspec.convert(metadata, _MetadataShape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _drop_unknown(metadata: Json) -> list[str]:
    unknown: list[str] = []
    for name in [name for name, value in metadata.items() if value is None or name not in _KNOWN]:
        if name not in _KNOWN and name not in _DROPPED:
            unknown.append(f"metadata.{name}")
        del metadata[name]
    return unknown


def _drop_empty(metadata: Json) -> None:
    # Empty texts, lists and maps are the same as none: ObjectMeta's members are "omitempty".
    for name in [name for name, value in metadata.items() if not value]:
        if name != "deletionGracePeriodSeconds":
            del metadata[name]


def _clean_owners(owners: list[Json]) -> list[str]:
    unknown: list[str] = []
    for index, owner in enumerate(owners):
        for name in [name for name, value in owner.items() if value is None or name not in _OWNER_FIELDS]:
            if name not in _OWNER_FIELDS:
                unknown.append(f"metadata.ownerReferences[{index}].{name}")
            del owner[name]
    return unknown


def _unreadable(definition: ResourceDefinition, detail: str) -> BadRequest:
    kind = definition.kind
    return BadRequest(f'{kind} in version "{definition.version}" cannot be handled as a {kind}: {detail}')


def check_name(definition: ResourceDefinition, metadata: Json) -> list[FieldError]:
    """Name and generateName against the kind's rule."""
    errors: list[FieldError] = []
    prefix, name = metadata.get("generateName", ""), metadata.get("name", "")
    if prefix and (detail := for_prefix(definition.name_rule)(prefix)):
        errors.append(invalid("metadata.generateName", prefix, detail))
    if not name:
        errors.append(
            FieldError(
                "metadata.name", "FieldValueRequired", "Required value: name or generateName is required"
            )
        )
    elif detail := definition.name_rule(name):
        errors.append(invalid("metadata.name", name, detail))
    return errors


def check(metadata: Json) -> list[FieldError]:
    """Labels, annotations, owner references and finalizers."""
    errors: list[FieldError] = []
    labels = metadata.get("labels")
    if labels and not (all(map(_key_is_good, labels)) and all(map(_value_is_good, labels.values()))):
        errors += naming.check_labels(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    if annotations and not (all(map(_key_is_good, annotations)) and _is_small(annotations)):
        errors += naming.check_annotations(annotations, "metadata.annotations")
    if owners := metadata.get("ownerReferences"):
        errors += _check_owners(owners)
    if finalizers := metadata.get("finalizers"):
        errors += _check_finalizers(finalizers)
    return errors


def _is_small(annotations: dict[str, str]) -> bool:
    """Whether they are under the limit for sure: a character has four bytes at most."""
    return 4 * sum(map(len, annotations.values())) < naming.MAX_ANNOTATIONS_BYTES // 2


def _check_owners(owners: list[Json]) -> list[FieldError]:
    errors: list[FieldError] = []
    controllers: list[str] = []
    for owner in owners:
        errors += _check_owner(owner)
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        text = 'Only one reference can have Controller set to true. Found "true" in references for '
        errors.append(invalid(_OWNERS, owners, text + " and ".join(controllers)))
    return errors


_OWNERS = "metadata.ownerReferences"


def _check_owner(owner: Json) -> list[FieldError]:
    # Kubernetes does not say which of the references is wrong.
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
        shown = {name: owner.get(name, "") for name in ("apiVersion", "kind", "name", "uid")}
        errors.append(invalid(_OWNERS, shown, "/v1, Kind=Event is disallowed from being an owner"))
    return errors


def _check_finalizers(finalizers: list[str]) -> list[FieldError]:
    errors = [
        invalid("metadata.finalizers", finalizer, detail)
        for finalizer in finalizers
        if (detail := naming.check_label_key(finalizer))
    ]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(invalid("metadata.finalizers", finalizers, text))
    return errors


def begin(metadata: Json, *, uid: str, now: str, has_generation: bool) -> None:
    """Set what the server decides when an object is created, and take out what no client may set."""
    for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        metadata.pop(name, None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if has_generation:
        metadata["generation"] = 1


_KEPT_ON_UPDATE = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def carry_over(new: Json, old: Json) -> None:
    """On update: what the server decided stays, whatever the client sent."""
    for name in ("name", "namespace", *_KEPT_ON_UPDATE):
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)
    if "generateName" in old:
        new.setdefault("generateName", old["generateName"])


def check_update(new: Json, old: Json) -> list[FieldError]:
    """What an update may not do: add finalizers to an object that is being deleted."""
    if "deletionTimestamp" not in old:
        return []
    added = [item for item in new.get("finalizers", ()) if item not in old.get("finalizers", ())]
    if not added:
        return []
    listed = ", ".join(f'"{item}"' for item in added)
    text = (
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{"
        + listed
        + "}"
    )
    return [forbidden("metadata.finalizers", text)]
