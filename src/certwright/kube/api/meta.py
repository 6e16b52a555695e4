"""Parts common to all objects: metadata, conditions, references, descriptions of fields.

Objects are frozen msgspec structs, so that what lies in a cache cannot be changed by accident; make a changed
one with `msgspec.structs.replace`. `apiVersion` and `kind` are not fields: they belong to the `Kind`
(kube/api/kinds.py), and `codec.encode` writes them.

Source: Kubernetes API reference, ObjectMeta v1 meta; Condition v1 meta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Meta, field


class ObjectKey(NamedTuple):
    """Namespace (empty for cluster-scoped kinds) and name: what a work queue holds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of every part of an object: camelCase on the wire, absent where it equals the default.

    Parts of objects never refer back to what holds them, so the garbage collector need not look at them
    (`gc=False`): with 50,000 certificates that is more than half of what it would have to look at.
    """


class OwnerReference(Struct, frozen=True):
    """Names the object that this one belongs to and is deleted with."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct, frozen=True):
    """Metadata of every object. Times have whole seconds; `resource_version` compares as an integer here."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)


class Object(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""


class Condition(Struct, frozen=True):
    """One observed aspect of an object (`status.conditions[]`, a map keyed by `type`)."""

    type: Annotated[str, doc("What the condition is about.")]
    status: Annotated[str, doc("True, False or Unknown.", enum=("True", "False", "Unknown"))]
    reason: Annotated[str, doc("Why, in one word for machines.")] = ""
    message: Annotated[str, doc("Why, in a sentence for people.")] = ""
    last_transition_time: Annotated[datetime | None, doc("When the status last changed.")] = None
    observed_generation: Annotated[
        int, doc("The generation of the object that was last processed.", format="int64")
    ] = 0


def removed_metadata(sent: ObjectMeta, stored: ObjectMeta) -> tuple[str, ...]:
    """The parts of an object's metadata that a create has not stored, because an admission webhook removed or
    changed them."""
    parts = [f"the label {key}" for key, value in sent.labels.items() if stored.labels.get(key) != value]
    parts += [
        f"the annotation {key}"
        for key, value in sent.annotations.items()
        if stored.annotations.get(key) != value
    ]
    uids = {owner.uid for owner in stored.owner_references if owner.controller}
    if any(owner.controller and owner.uid not in uids for owner in sent.owner_references):
        parts.append(CONTROLLER_REFERENCE)
    return tuple(parts)


def changed_by_admission(what: str, parts: Sequence[str]) -> str:
    """The sentence about an object that was stored otherwise than sent, and what to do."""
    return (
        f"An admission webhook or policy of the cluster has removed or changed {', '.join(parts)} of {what}; "
        "exclude these objects from it."
    )


class OwnedMeta(Protocol):
    """The part of an object's metadata that names its owners, as far as it is cached."""

    @property
    def namespace(self) -> str:
        """The object's namespace; empty where it has none."""

    @property
    def owner_references(self) -> tuple[OwnerReference, ...]:
        """The object's owners."""


class Owned(Protocol):
    """An object, or what is cached of it, with its owners."""

    @property
    def metadata(self) -> OwnedMeta:
        """The object's metadata."""


CONTROLLER_REFERENCE: Final = "the owner reference"
"""What `removed_metadata` calls the reference to the controller."""


def is_controlled_by(meta: OwnedMeta, uid: str) -> bool:
    """Whether the object of that UID is the one whose controller made this one."""
    owner = controller_of(meta)
    return owner is not None and owner.uid == uid


def controller_of(meta: OwnedMeta) -> OwnerReference | None:
    """The one owner reference marked `controller`, if there is one."""
    for owner in meta.owner_references:
        if owner.controller:
            return owner
    return None


def doc(text: str, **schema: Any) -> Meta:
    """An annotation of a field, `Annotated[str, doc("what it is")]`: `text` becomes the field's description
    in the schema; `schema` holds further OpenAPI keywords for it. Annotations are strings until they are
    evaluated, so the texts cost nothing at start; `crds.py` reads them for `kubectl explain`.

    The keywords (`enum`, `pattern`, `minLength`, `format`, `default` …) are enforced by the API server, not
    when an object is decoded, so that an unknown value of a newer version survives a round trip. Four of
    them are ours: `needed` puts a field into the schema's `required` or keeps it out (a field without default
    is there by itself), `items={…}` adds keywords to the elements of a list, `map_keys` names the keys of a
    list that is merged like a map, and `atomic=True` marks an object that is only replaced as a whole.
    """
    return Meta(description=text, extra_json_schema=schema or None)
