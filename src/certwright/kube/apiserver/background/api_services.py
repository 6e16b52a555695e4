"""APIServices of the groups that this server itself serves, maintained as in Kubernetes.

They list groups and versions, and that these are available: the built-in ones are created when the server
starts, those of custom resources are created and deleted with their definitions. Other APIServices, for
aggregated servers, are left alone.

Source: Kubernetes API reference, APIService v1 apiregistration; kube-aggregator
`pkg/controllers/autoregister`, kube-apiserver `pkg/controlplane/apiserver` (aggregator).
"""

from __future__ import annotations

from collections.abc import Iterator

from certwright.kube.api.errors import ApiError, from_response
from certwright.kube.apiserver.background.worker import Worker
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds.controllers import BUCKET as CRDS
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.store.contract import Row
from certwright.kube.util.http_messages import Handler, Identity, Request

_GROUP, _BUCKET = "apiregistration.k8s.io", "apiregistration.k8s.io/apiservices"
_PATH = f"/apis/{_GROUP}/v1/apiservices"
_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
_FIRST, _STEP, _BUILT_IN = 18000, 100, 15  # priorities, as Kubernetes gives them
_CUSTOM_GROUP, _CUSTOM_VERSION = 1000, 100


class LocalServices:
    """Controller of the APIServices of this server's groups. An observer of writes."""

    observed_buckets = (_BUCKET, CRDS)

    def __init__(self, backend: Backend, handle: Handler, user: Identity) -> None:
        self._backend = backend
        self._handle = handle
        self._user = user
        self.worker = Worker(backend, "APIServices", self._sync)

    def wrote(self, definition: ResourceDefinition, _row: Row, _previous: Row | None) -> None:
        """Request a sync, because a definition adds groups and versions."""
        if definition.is_crd:
            self.worker.add("")

    def removed(self, _definition: ResourceDefinition, _row: Row) -> None:
        """Request a sync: a definition removes groups and versions; a deleted APIService is created again."""
        self.worker.add("")

    async def _sync(self, _: str) -> None:
        """Create missing APIServices, and delete superfluous ones. Raises the last refusal, after all
        writes."""
        stored = {row.key.name: row for row in (await self._backend.store.list(_BUCKET)).rows}
        desired = {service["metadata"]["name"]: service for service in self._services()}
        refusal: ApiError | None = None
        for name, service in desired.items():
            if name not in stored:
                refusal = await self._write("POST", _PATH, encode_json(service)) or refusal
        for name, row in stored.items():
            if name not in desired and _MANAGED in objects.labels_of(row.meta):
                refusal = await self._write("DELETE", f"{_PATH}/{name}", b"") or refusal
        if refusal is not None:
            raise refusal

    def _services(self) -> Iterator[Json]:
        registry = self._backend.registry
        for index, group in enumerate(group for group in registry.groups() if group.name != _GROUP):
            custom = all(
                definition.custom
                for version in group.versions
                for definition in registry.in_version(group.name, version)
            )
            priority = _CUSTOM_GROUP if custom else _FIRST - _STEP * index
            for version in group.versions:
                yield {
                    "metadata": {
                        "name": f"{version}.{group.name}",
                        "labels": {_MANAGED: "true" if custom else "onstart"},
                    },
                    "spec": {
                        "group": group.name,
                        "version": version,
                        "groupPriorityMinimum": priority,
                        "versionPriority": _CUSTOM_VERSION if custom else _BUILT_IN,
                    },
                }

    async def _write(self, method: str, path: str, body: bytes) -> ApiError | None:
        request = Request(method, path, {"user-agent": "kube-apiserver"}, body, self._user)
        response = await self._handle(request)
        if response.status < 400 or response.status in (404, 409):
            return None
        return from_response(response.status, response.body)
