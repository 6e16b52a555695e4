"""The addresses of all ready replicas: those of `--http01-cluster-service`, which Kubernetes keeps.

Every replica answers every challenge (`responses.py`), so a proxy that knows all of them passes a CA's
request to a living one while another is lost. Without the flag the addresses are those of this process.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from msgspec.structs import replace

from certwright.controllers.acme.options import ClusterListener
from certwright.controllers.acme.routes import objects
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock

DEBOUNCE_S: Final = 1.0
"""Replicas come and go together, as in a rollout: their changes within this time are one."""
RETRY_S: Final = 10.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Replicas:
    """Follows the Service that `own` names, if it names one; `own` is the listener of this process."""

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
        """The listeners of all ready replicas and of this one. A family that this one has no address of is
        left out, so that the number of EndpointSlices never changes."""
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
