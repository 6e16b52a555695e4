"""The kinds of Kubernetes itself that this program serves and uses.

Source: Kubernetes API reference: Namespace, Secret, ConfigMap, Event, ServiceAccount v1 core; Lease v1
coordination.k8s.io.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import field

from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import ObjectMeta, Struct, doc


class NamespaceSpec(Struct, frozen=True, kw_only=True):
    """What a namespace needs before it goes."""

    finalizers: Annotated[tuple[str, ...], doc("What must be cleared before the namespace goes.")] = ()


class NamespaceStatus(Struct, frozen=True, kw_only=True):
    """Whether a namespace is in use."""

    phase: Annotated[str, doc("Active or Terminating.")] = ""


class Namespace(Struct, frozen=True, kw_only=True):
    """A namespace: the scope of object names."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NamespaceSpec, doc("What the namespace needs before it goes.")] = NamespaceSpec()
    status: Annotated[NamespaceStatus, doc("Whether the namespace is in use.")] = NamespaceStatus()


class ManagedFields(Struct, frozen=True):
    """One manager, and the fields that it has set (Kubernetes API reference, ManagedFieldsEntry v1 meta).

    `fields_v1` is raw JSON. Thousands of Secrets have the same few sets of fields: equal ones share one
    object.
    """

    manager: str = ""
    operation: str = ""
    fields_v1: Any = field(default=None, name="fieldsV1")

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "manager", sys.intern(self.manager))
        msgspec.structs.force_setattr(self, "operation", sys.intern(self.operation))
        if self.fields_v1 is not None and type(self.fields_v1) is not msgspec.Raw:
            msgspec.structs.force_setattr(self, "fields_v1", _shared(msgspec.json.encode(self.fields_v1)))


_SHARED: dict[bytes, msgspec.Raw] = {}
# Managers have a handful of forms; a client that creates more on purpose gets no more memory than this.
_MOST_SHARED = 4096


def _shared(fields: bytes) -> msgspec.Raw:
    shared = _SHARED.get(fields)
    if shared is None:
        if len(_SHARED) >= _MOST_SHARED:
            _SHARED.clear()
        shared = _SHARED[fields] = msgspec.Raw(fields)
    return shared


class SecretMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata of a Secret, with its managed fields."""

    managed_fields: tuple[ManagedFields, ...] = ()


class Secret(Struct, frozen=True, kw_only=True):
    """Bytes that not everybody may read, by key."""

    metadata: SecretMeta = SecretMeta()
    type: Annotated[str, doc("What the Secret is for; kubernetes.io/tls needs tls.crt and tls.key.")] = ""
    data: Annotated[Mapping[str, bytes], doc("The entries, base64-encoded.")] = field(default_factory=dict)
    string_data: Annotated[
        Mapping[str, str], doc("Entries in plain text, for writing only; they are put into `data`.")
    ] = field(default_factory=dict)
    immutable: Annotated[bool | None, doc("Whether the entries can no longer be changed.")] = None


class ConfigMap(Struct, frozen=True, kw_only=True):
    """Settings, by key."""

    metadata: ObjectMeta = ObjectMeta()
    data: Annotated[Mapping[str, str], doc("The entries that are text.")] = field(default_factory=dict)
    binary_data: Annotated[Mapping[str, bytes], doc("The entries that are not text, base64-encoded.")] = (
        field(default_factory=dict)
    )
    immutable: Annotated[bool | None, doc("Whether the entries can no longer be changed.")] = None


class TypedObjectReference(Struct, frozen=True, kw_only=True):
    """Names any object (core/v1 ObjectReference)."""

    api_version: Annotated[str, doc("Group and version of the object.")] = ""
    kind: Annotated[str, doc("Kind of the object.")] = ""
    name: Annotated[str, doc("Name of the object.")] = ""
    namespace: Annotated[str, doc("Namespace of the object.")] = ""
    uid: Annotated[str, doc("UID of the object.")] = ""
    resource_version: Annotated[str, doc("Version of the object.")] = ""
    field_path: Annotated[str, doc("Part of the object.")] = ""


class EventSource(Struct, frozen=True, kw_only=True):
    """The component that reported it."""

    component: Annotated[str, doc("The program, or the part of it.")] = ""
    host: Annotated[str, doc("The machine.")] = ""


class EventSeries(Struct, frozen=True, kw_only=True):
    """How often it was seen."""

    count: Annotated[int, doc("How many times.", format="int32")] = 0
    last_observed_time: Annotated[str | None, doc("When last (MicroTime).", format="date-time")] = None


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened to an object, for people to read. Kept for a while only.

    `event_time` and the series' time are MicroTime: text with exactly six digits after the second
    (RFC 3339 with six digits), because Go reads no other.
    """

    metadata: ObjectMeta = ObjectMeta()
    involved_object: Annotated[TypedObjectReference, doc("What it happened to.")] = TypedObjectReference()
    reason: Annotated[str, doc("What happened, in one word for machines.")] = ""
    message: Annotated[str, doc("What happened, in a sentence for people.")] = ""
    source: Annotated[EventSource, doc("The component that reported it.")] = EventSource()
    first_timestamp: Annotated[datetime | None, doc("When it was first seen.")] = None
    last_timestamp: Annotated[datetime | None, doc("When it was last seen.")] = None
    count: Annotated[int, doc("How many times it was seen.", format="int32")] = 0
    type: Annotated[str, doc("Normal or Warning.")] = ""
    event_time: Annotated[str | None, doc("When it was first seen (MicroTime).", format="date-time")] = None
    series: Annotated[EventSeries | None, doc("How often it was seen.")] = None
    action: Annotated[str, doc("What was done about it.")] = ""
    related: Annotated[TypedObjectReference | None, doc("Another object that it has to do with.")] = None
    reporting_component: Annotated[str, doc("The controller that saw it.")] = ""
    reporting_instance: Annotated[str, doc("The controller's instance.")] = ""


class LocalSecretReference(Struct, frozen=True, kw_only=True):
    """A Secret of the same namespace."""

    name: Annotated[str, doc("Name of the Secret.")] = ""


class ServiceAccount(Struct, frozen=True, kw_only=True):
    """An identity for programs."""

    metadata: ObjectMeta = ObjectMeta()
    secrets: Annotated[tuple[TypedObjectReference, ...], doc("Secrets that its pods may use.")] = ()
    image_pull_secrets: Annotated[
        tuple[LocalSecretReference, ...], doc("Credentials for image registries.")
    ] = ()
    automount_service_account_token: Annotated[
        bool | None, doc("Whether pods are given a token without asking.")
    ] = None


class LeaseSpec(Struct, frozen=True, kw_only=True):
    """The holder of a Lease and its timing. Times are MicroTime (RFC 3339 with six digits)."""

    holder_identity: Annotated[str | None, doc("Identity of the holder.")] = None
    lease_duration_seconds: Annotated[
        int | None, doc("How long the others wait after `renewTime`.", format="int32")
    ] = None
    acquire_time: Annotated[str | None, doc("When the holder took the lease.", format="date-time")] = None
    renew_time: Annotated[str | None, doc("When the holder last renewed it.", format="date-time")] = None
    lease_transitions: Annotated[int | None, doc("How often the holder changed.", format="int32")] = None
    strategy: Annotated[str | None, doc("How a new holder is chosen.")] = None
    preferred_holder: Annotated[str | None, doc("Identity of the preferred holder.")] = None


class Lease(Struct, frozen=True, kw_only=True):
    """A lock with expiry, for leader election."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[LeaseSpec, doc("The holder of the lease, and its expiry.")] = LeaseSpec()


NAMESPACES: Final = Kind("", "v1", "Namespace", "namespaces", "namespace", False, Namespace, ("ns",))

SECRETS: Final = Kind("", "v1", "Secret", "secrets", "secret", True, Secret)

CONFIG_MAPS: Final = Kind("", "v1", "ConfigMap", "configmaps", "configmap", True, ConfigMap, ("cm",))

EVENTS: Final = Kind("", "v1", "Event", "events", "event", True, Event, ("ev",))

SERVICE_ACCOUNTS: Final = Kind(
    "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", True, ServiceAccount, ("sa",)
)

LEASES: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases", "lease", True, Lease)


def _review(group: str, kind: str) -> Kind[dict[str, Any]]:
    """A question to the API server, which is created and not stored."""
    return Kind(f"{group}.k8s.io", "v1", kind, f"{kind.lower()}s", kind.lower(), False, dict)


SUBJECT_ACCESS_REVIEWS: Final = _review("authorization", "SubjectAccessReview")
SELF_SUBJECT_ACCESS_REVIEWS: Final = _review("authorization", "SelfSubjectAccessReview")
SELF_SUBJECT_RULES_REVIEWS: Final = _review("authorization", "SelfSubjectRulesReview")
TOKEN_REVIEWS: Final = _review("authentication", "TokenReview")
SELF_SUBJECT_REVIEWS: Final = _review("authentication", "SelfSubjectReview")

CUSTOM_RESOURCE_DEFINITIONS: Final[Kind[dict[str, Any]]] = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
    False,
    dict,
    ("crd", "crds"),
    ("api-extensions",),
)

CORE_KINDS: Final[tuple[AnyKind, ...]] = (
    NAMESPACES,
    SECRETS,
    CONFIG_MAPS,
    EVENTS,
    SERVICE_ACCOUNTS,
    LEASES,
)
"""The kinds of Kubernetes itself that are served."""
