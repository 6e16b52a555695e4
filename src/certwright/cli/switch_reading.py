"""Read from a cluster what decides whether certwright can take it over. Nothing is written."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from certwright.cli.related import CERTIFICATES
from certwright.cli.switch_findings import Cluster
from certwright.kube.api.errors import ApiError, NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS

Json = dict[str, Any]
T = TypeVar("T")


def _kind(group: str, kind: str, plural: str, *, namespaced: bool) -> Kind[Json]:
    return Kind(group, "v1", kind, plural, kind.lower(), namespaced, Json)


_INGRESSES: Final = _kind("networking.k8s.io", "Ingress", "ingresses", namespaced=True)
_GATEWAYS: Final = _kind("gateway.networking.k8s.io", "Gateway", "gateways", namespaced=True)
_LISTENER_SETS: Final = _kind("gateway.networking.k8s.io", "ListenerSet", "listenersets", namespaced=True)
_DEPLOYMENTS: Final = _kind("apps", "Deployment", "deployments", namespaced=True)
_VALIDATING: Final = _kind(
    "admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
_MUTATING: Final = _kind(
    "admissionregistration.k8s.io",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
_SERVICES: Final = _kind("apiregistration.k8s.io", "APIService", "apiservices", namespaced=False)
_DEFINITIONS: Final = _kind(
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
_OPTIONAL: Final = (_GATEWAYS, _LISTENER_SETS)
"""Kinds that a cluster need not have."""


class SwitchReader:
    """Reads one cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._missing: dict[str, str] = {}

    async def read(self) -> Cluster:
        """All that matters. What cannot be read is in `missing`. Raises `Unreachable`."""
        webhooks = [*await self._list(_VALIDATING), *await self._list(_MUTATING)]
        return Cluster(
            issuers=await self._list(ISSUERS),
            cluster_issuers=await self._list(CLUSTER_ISSUERS),
            certificates=await self._list(CERTIFICATES),
            ingresses=await self._list(_INGRESSES),
            gateways=await self._list(_GATEWAYS),
            listener_sets=await self._list(_LISTENER_SETS),
            deployments=await self._list(_DEPLOYMENTS),
            webhooks=webhooks,
            injected=[*webhooks, *await self._list(_SERVICES), *await self._list(_DEFINITIONS)],
            missing=self._missing,
        )

    async def _list(self, kind: Kind[T]) -> list[T]:
        try:
            objects = (await self._client.list(kind)).items
        except NotFound as error:
            if kind not in _OPTIONAL:
                self._missing[kind.resource] = str(error)
            return []
        except ApiError as error:
            self._missing[kind.resource] = str(error)
            return []
        for item in objects:
            if isinstance(item, dict):
                item.setdefault("kind", kind.kind)
        return objects
