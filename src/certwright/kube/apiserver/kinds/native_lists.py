"""Merge strategies of built-in lists: for patches, and for server-side apply.

Source: the tags `patchMergeKey`, `listType`, `listMapKey`, `mapType` and `structType` of `k8s.io/api`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, Protocol

from certwright.kube.apiserver.kinds.messages import fields


class Merge(NamedTuple):
    """How one list is merged. `patch_key` None: patches replace it; empty: its values are the keys."""

    patch_key: str | None
    list_type: str
    map_keys: tuple[str, ...] = ()


def _keyed(key: str, *more: str) -> Merge:
    return Merge(key, "map", (key, *more))


_CONTAINER = {
    "env": _keyed("name"),
    "ports": _keyed("containerPort", "protocol"),
    "volumeMounts": _keyed("mountPath"),
    "volumeDevices": _keyed("devicePath"),
}
_OF_MESSAGE: Mapping[str, Mapping[str, Merge]] = {
    "meta.v1.ObjectMeta": {"ownerReferences": _keyed("uid"), "finalizers": Merge("", "set")},
    "core.v1.ServiceAccount": {"secrets": _keyed("name")},
    "core.v1.NamespaceStatus": {"conditions": _keyed("type")},
    "core.v1.ServiceSpec": {"ports": _keyed("port", "protocol")},
    "core.v1.ServiceStatus": {"conditions": _keyed("type")},
    "core.v1.PodSpec": {
        "containers": _keyed("name"),
        "ephemeralContainers": _keyed("name"),
        "hostAliases": _keyed("ip"),
        "imagePullSecrets": _keyed("name"),
        "initContainers": _keyed("name"),
        "resourceClaims": _keyed("name"),
        "schedulingGates": _keyed("name"),
        "topologySpreadConstraints": _keyed("topologyKey", "whenUnsatisfiable"),
        "volumes": _keyed("name"),
    },
    "core.v1.PodStatus": {
        "conditions": _keyed("type"),
        "hostIPs": Merge("ip", "atomic"),
        "podIPs": _keyed("ip"),
        "resourceClaimStatuses": _keyed("name"),
    },
    "core.v1.Container": _CONTAINER,
    "core.v1.EphemeralContainer": _CONTAINER,
    "core.v1.ResourceRequirements": {"claims": Merge(None, "map", ("name",))},
    "discovery.v1.Endpoint": {"addresses": Merge(None, "set")},
    "certificates.v1.CertificateSigningRequestStatus": {"conditions": Merge(None, "map", ("type",))},
    "admissionregistration.v1.MutatingWebhookConfiguration": {"webhooks": _keyed("name")},
    "admissionregistration.v1.ValidatingWebhookConfiguration": {"webhooks": _keyed("name")},
    "admissionregistration.v1.MutatingWebhook": {"matchConditions": _keyed("name")},
    "admissionregistration.v1.ValidatingWebhook": {"matchConditions": _keyed("name")},
    "apiregistration.v1.APIServiceStatus": {"conditions": _keyed("type")},
}
_REPLACED = Merge(None, "atomic")

ATOMIC_MESSAGES = frozenset(
    {
        "core.v1.ConfigMapKeySelector",
        "core.v1.LocalObjectReference",
        "core.v1.NodeSelector",
        "core.v1.NodeSelectorTerm",
        "core.v1.ObjectFieldSelector",
        "core.v1.ObjectReference",
        "core.v1.ResourceFieldSelector",
        "core.v1.ScopeSelector",
        "core.v1.SecretKeySelector",
        "core.v1.SecretReference",
        "core.v1.TypedLocalObjectReference",
        "meta.v1.LabelSelector",
        "meta.v1.OwnerReference",
        "networking.v1.ServiceBackendPort",
        "rbac.v1.RoleRef",
        "rbac.v1.Subject",
    }
)
"""Atomic messages."""

ATOMIC_MAPS = frozenset({("core.v1.ServiceSpec", "selector"), ("core.v1.PodSpec", "nodeSelector")})
"""Atomic maps, by message and field."""


def merge_of(message: str, name: str) -> Merge:
    """The merge strategy of the list `name` of a message."""
    return _OF_MESSAGE.get(message, {}).get(name, _REPLACED)


class Kind(Protocol):
    """Knows which message it is."""

    @property
    def message(self) -> str:
        """The name of the message."""


class MergeKeys(Mapping[tuple[str, ...], str]):
    """The merge keys of strategic merge patches by path, collected when the first patch comes."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    @cached_property
    def _keys(self) -> dict[tuple[str, ...], str]:
        return dict(_collect(self._kind.message, (), frozenset()))

    def __getitem__(self, path: tuple[str, ...]) -> str:
        return self._keys[path]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _collect(
    message: str, path: tuple[str, ...], above: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for field in fields(message):
        here = (*path, field.name)
        if field.repeated and (key := merge_of(message, field.name).patch_key) is not None:
            yield here, key
        if field.is_message and field.type not in above:
            yield from _collect(field.type, here, above | {message})
