"""The Services of namespaces with pending challenges, and their EndpointSlices, which follow the replicas.

A Service exists while a challenge of this process uses it. `Leftovers` removes the objects of killed
processes and of cert-manager.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from certwright.controllers.acme.options import ClusterListener
from certwright.controllers.acme.routes import objects
from certwright.kube.api.errors import ApiError, Conflict, Forbidden, NotFound, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.resources.acme import Challenge
from certwright.resources.table import CHALLENGES

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
    """Creates and deletes the Services. Counts the users of each by their UIDs."""

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

    async def release(self, key: ServiceKey, uid: str = "") -> None:
        """Delete the Service, which may be that of an earlier process, if no other challenge uses it. Raises
        what a deletion raises."""
        async with self._locks[key]:
            self._users[key].discard(uid)
            if self._users[key]:
                return
            self._written.pop(key, None)
            try:
                # The Service owns its EndpointSlices, which are deleted with it.
                await self._client.delete(objects.SERVICES, key.name, key.namespace)
            except NotFound:
                pass
            self._users.pop(key, None)

    async def _apply(self, kind: Kind[objects.Json], manifest: objects.Json) -> objects.Json:
        return await self._client.apply(kind, manifest, field_manager=FIELD_MANAGER, force=True)


DEBOUNCE_S: Final = 1.0
"""Replicas come and go together, as in a rollout: their changes within this time are one."""
RETRY_S: Final = 10.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Replicas:
    """The addresses of all ready replicas, from the EndpointSlices of `--http01-cluster-service`.

    Every replica answers every challenge (`responses.py`), so a proxy with all addresses passes a CA's
    request to a living replica while another is lost. Without the flag, the addresses are those of `own`, the
    listener of this process.
    """

    def __init__(self, client: Client, clock: Clock, own: ClusterListener) -> None:
        self._clock = clock
        self._own = own
        self._changed = asyncio.Event()
        self._slices: Informer[objects.Json] | None = None
        if own.service is not None:
            labels = f"{objects.SERVICE_NAME_LABEL}={own.service.name}"
            self._slices = Informer(
                client, objects.ENDPOINT_SLICES, clock, namespace=own.service.namespace, labels=labels
            )

    @property
    def listener(self) -> ClusterListener:
        """The listeners of all ready replicas and of this process. An address family that this process lacks
        is left out, so that the number of EndpointSlices never changes."""
        if self._slices is None:
            return self._own
        addresses = {ipaddress.ip_address(text) for text in self._own.addresses}
        families = {address.version for address in addresses}
        for endpoint_slice in self._slices.cache.values():
            addresses |= {address for address in _ready(endpoint_slice) if address.version in families}
        ordered = sorted(addresses, key=lambda address: (address.version, int(address)))
        return replace(self._own, addresses=tuple(str(address) for address in ordered))

    async def run(self, apply: Callable[[], Awaitable[bool]]) -> None:
        """Call `apply` after changes until cancelled, and again if it returns False. Returns immediately
        where there is nothing to follow."""
        if self._slices is None:
            return
        self._slices.add_handler(lambda _old, _new: self._changed.set())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._slices.run(), name="informer of replicas")
            group.create_task(self._call(apply), name="changes of replicas")

    async def _call(self, apply: Callable[[], Awaitable[bool]]) -> None:
        while True:
            await self._changed.wait()
            await self._clock.sleep(DEBOUNCE_S)
            self._changed.clear()
            while not await apply():
                await self._clock.sleep(RETRY_S)


def _ready(endpoint_slice: objects.Json) -> Iterator[Address]:
    """The addresses of ready endpoints; `ready` that is not set means true (EndpointConditions)."""
    for endpoint in endpoint_slice.get("endpoints") or ():
        conditions = endpoint.get("conditions") or {}
        if conditions.get("ready") is False or conditions.get("terminating"):
            continue
        for text in endpoint.get("addresses") or ():
            try:
                yield ipaddress.ip_address(text)
            except ValueError:
                # The addressType FQDN, which Kubernetes itself never writes.
                continue


INTERVAL: Final = timedelta(hours=1)
# The Challenge of a younger object may not be in the cache yet.
YOUNG: Final = timedelta(minutes=5)
_PAGE: Final = 500
_KINDS: Final = (objects.PODS, objects.INGRESSES, objects.HTTP_ROUTES, objects.SERVICES)


class Leftovers:
    """Removes objects of HTTP-01 solvers that outlived their Challenge, at the start and once an hour:
    objects of cert-manager or of a killed process. `challenges` must be in sync.

    Kubernetes deletes most of them with their owner, the Challenge. Left over are objects of a Challenge that
    has ended and still exists, and the Services of namespaces, which no Challenge owns.
    """

    def __init__(
        self, client: Client, clock: Clock, challenges: Informer[Challenge], services: SolverServices
    ) -> None:
        self._client = client
        self._clock = clock
        self._challenges = challenges
        self._services = services

    async def run(self, namespace: str) -> None:
        """Until cancelled; `namespace` "": in all."""
        while True:
            for kind in _KINDS:
                try:
                    await self._remove(kind, namespace)
                except (NotFound, Forbidden) as error:
                    _log.debug("left-over %s are not removed: %s", kind.plural, error)
                except (ApiError, Unreachable) as error:
                    _log.warning("left-over %s could not be removed: %s", kind.plural, error)
            await self._clock.sleep(INTERVAL.total_seconds())

    async def _remove(self, kind: Kind[objects.Json], namespace: str) -> None:
        labels = f"{objects.SOLVER_LABEL}=true"
        candidates = (await self._client.list(kind, namespace, labels=labels, limit=_PAGE)).items
        pending = {challenge.metadata.uid: challenge.metadata.namespace for challenge in self._pending()}
        in_use = frozenset(pending.values())
        for candidate in candidates:
            meta = candidate["metadata"]
            if self._clock.now() - datetime.fromisoformat(meta["creationTimestamp"]) < YOUNG:
                continue
            owner = _owning_challenge(candidate)
            if owner:
                if owner not in pending:
                    await self._delete(kind, candidate)
            elif kind is objects.SERVICES and _is_ours(candidate) and meta["namespace"] not in in_use:
                await self._services.release(ServiceKey(meta["namespace"], meta["name"]))

    def _pending(self) -> Iterator[Challenge]:
        return (challenge for challenge in self._challenges.cache.values() if not challenge.status.is_final)

    async def _delete(self, kind: Kind[objects.Json], obj: objects.Json) -> None:
        meta = obj["metadata"]
        try:
            await self._client.delete(kind, meta["name"], meta["namespace"], uid=meta["uid"])
        except (NotFound, Conflict):
            return
        _log.info("%s %s/%s of an ended Challenge removed", kind.kind, meta["namespace"], meta["name"])


def _owning_challenge(obj: objects.Json) -> str:
    """The UID of the Challenge that owns the object; empty where none does."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == CHALLENGES.kind and owner.get("apiVersion") == CHALLENGES.api_version:
            return str(owner.get("uid", ""))
    return ""


def _is_ours(service: objects.Json) -> bool:
    labels = service["metadata"].get("labels") or {}
    return labels.get(objects.MANAGED_BY) == objects.US and "selector" not in service["spec"]
