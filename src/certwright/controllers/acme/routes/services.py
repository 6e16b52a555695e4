"""The Services of namespaces with pending challenges, and their EndpointSlices, which follow the replicas.

A Service exists while at least one challenge of this process uses it. What a killed process leaves behind is
removed by `leftovers.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import NamedTuple

from certwright.controllers.acme.routes import objects
from certwright.controllers.acme.routes.replicas import Replicas
from certwright.kube.api.errors import ApiError, NotFound, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client

_log = logging.getLogger(__name__)

FIELD_MANAGER = "certwright-http01"


class ServiceKey(NamedTuple):
    """A Service of a namespace."""

    namespace: str
    name: str


class _Written(NamedTuple):
    """A Service, and its EndpointSlices as this process has written them."""

    service: objects.Json
    slices: list[objects.Json]


class SolverServices:
    """Counts the users of each Service by their UIDs."""

    def __init__(self, client: Client, replicas: Replicas) -> None:
        self._client = client
        self._replicas = replicas
        self._users: defaultdict[ServiceKey, set[str]] = defaultdict(set)
        self._written: dict[ServiceKey, _Written] = {}
        self._locks: defaultdict[ServiceKey, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def use(self, key: ServiceKey, service_type: str, uid: str, *, is_fresh: bool = True) -> None:
        """Create the Service unless this process has; `is_fresh` False: verify it, too. Raises what writes
        raise."""
        async with self._locks[key]:
            self._users[key].add(uid)
            if key in self._written and is_fresh:
                return
            listener = self._replicas.listener
            service = objects.service(key.namespace, key.name, service_type, listener)
            made = await self._apply(objects.SERVICES, service)
            slices = objects.endpoint_slices(made, listener)
            for endpoint_slice in slices:
                await self._apply(objects.ENDPOINT_SLICES, endpoint_slice)
            self._written[key] = _Written(made, slices)

    async def follow_replicas(self) -> None:
        """Keep the EndpointSlices up to date, until cancelled."""
        await self._replicas.run(self._update)

    async def _update(self) -> bool:
        """Write the EndpointSlices that differ from the replicas of now; False if one was not written."""
        is_done = True
        for key in list(self._written):
            try:
                await self._update_slices(key)
            except (ApiError, Unreachable) as error:
                _log.warning(
                    "the EndpointSlices of the Service %s/%s cannot be updated: %s; trying again", *key, error
                )
                is_done = False
        return is_done

    async def _update_slices(self, key: ServiceKey) -> None:
        async with self._locks[key]:
            if (written := self._written.get(key)) is None:
                return
            desired = objects.endpoint_slices(written.service, self._replicas.listener)
            for number, endpoint_slice in enumerate(desired):
                if endpoint_slice != written.slices[number]:
                    await self._apply(objects.ENDPOINT_SLICES, endpoint_slice)
                    written.slices[number] = endpoint_slice

    async def release(self, key: ServiceKey, uid: str) -> None:
        """Delete the Service if no other challenge uses it. Raises what a deletion raises."""
        async with self._locks[key]:
            self._users[key].discard(uid)
            if not self._users[key]:
                await self._delete(key)

    async def remove_unused(self, key: ServiceKey) -> None:
        """Delete a Service that an earlier process has left, unless it is used again. Raises what a deletion
        raises."""
        async with self._locks[key]:
            if not self._users[key]:
                await self._delete(key)

    async def _delete(self, key: ServiceKey) -> None:
        self._written.pop(key, None)
        try:
            # Its EndpointSlices go with it: it owns them.
            await self._client.delete(objects.SERVICES, key.name, key.namespace)
        except NotFound:
            pass
        self._users.pop(key, None)

    async def _apply(self, kind: Kind[objects.Json], manifest: objects.Json) -> objects.Json:
        return await self._client.apply(kind, manifest, field_manager=FIELD_MANAGER, force=True)
