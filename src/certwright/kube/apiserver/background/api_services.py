"""APIServices of the groups that this server itself serves, maintained as in Kubernetes.

They list groups and versions, and that these are available: the built-in ones are created when the server
starts, those of custom resources are created and deleted with their definitions. Other APIServices, for
aggregated servers, are left alone.

Source: Kubernetes API reference, APIService v1 apiregistration; kube-aggregator
`pkg/controllers/autoregister`, kube-apiserver `pkg/controlplane/apiserver` (aggregator).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds.controllers import BUCKET as CRDS
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.store.contract import Row, StoreError
from certwright.kube.util.http_messages import Handler, Identity, Request

_log = logging.getLogger(__name__)
_GROUP, _BUCKET = "apiregistration.k8s.io", "apiregistration.k8s.io/apiservices"
_PATH = f"/apis/{_GROUP}/v1/apiservices"
_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
_FIRST, _STEP, _BUILT_IN = 18000, 100, 15  # priorities, as Kubernetes gives them
_CUSTOM_GROUP, _CUSTOM_VERSION = 1000, 100
_PAUSE_S = 60  # after a webhook has denied one


class LocalServices:
    """Creates and deletes them in the background. An observer of writes."""

    observed_buckets = (_BUCKET, CRDS)

    def __init__(self, backend: Backend, handle: Handler, user: Identity) -> None:
        self._backend = backend
        self._handle = handle
        self._user = user
        self._sync_requested = asyncio.Event()
        self._working = False

    @property
    def idle(self) -> bool:
        """Whether no work is left."""
        return not self._sync_requested.is_set() and not self._working

    def wrote(self, definition: ResourceDefinition, _row: Row, _previous: Row | None) -> None:
        """Request a sync, because a definition adds groups and versions."""
        if definition.is_crd:
            self._sync_requested.set()

    def removed(self, _definition: ResourceDefinition, _row: Row) -> None:
        """Request a sync: a definition removes groups and versions; a deleted APIService is created again."""
        self._sync_requested.set()

    async def run(self) -> None:
        """Sync, first now and then with every change, until cancelled."""
        self._sync_requested.set()
        while True:
            await self._sync_requested.wait()
            self._sync_requested.clear()
            self._working = True
            try:
                if not await self._settle():
                    self._backend.tasks.start(self._try_later(), name="APIServices, again")
            except StoreError:
                _log.warning("the APIServices are brought into line later", exc_info=True)
                await self._backend.clock.sleep(1)
                self._sync_requested.set()
            finally:
                self._working = False

    async def _try_later(self) -> None:
        await self._backend.clock.sleep(_PAUSE_S)
        self._sync_requested.set()

    async def _settle(self) -> bool:
        """Create missing APIServices, delete superfluous ones; whether all writes were accepted."""
        rows = (await self._backend.store.list(_BUCKET)).rows
        there = {row.key.name: row for row in rows}
        desired = {service["metadata"]["name"]: service for service in self._services()}
        missing = [service for name, service in desired.items() if name not in there]
        extra = [
            name
            for name, row in there.items()
            if name not in desired and _MANAGED in objects.labels_of(row.meta)
        ]
        made = [await self._write("POST", _PATH, service) for service in missing]
        gone = [await self._write("DELETE", f"{_PATH}/{name}", None) for name in extra]
        return all(made) and all(gone)

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

    async def _write(self, method: str, path: str, obj: Json | None) -> bool:
        body = encode_json(obj) if obj is not None else b""
        request = Request(method, path, {"user-agent": "kube-apiserver"}, body, self._user)
        response = await self._handle(request)
        if response.status < 400 or response.status in (404, 409):
            return True
        _log.warning("%s %s: %s", method, path, response.body.decode(errors="replace"))
        return False
