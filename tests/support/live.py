"""The real controllers and API server in one process, on the wall clock: HTTP has a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from certwright.controllers.manager import Controllers
from certwright.controllers.settings import Settings
from certwright.kube.api import conditions
from certwright.kube.api.errors import NotFound
from certwright.kube.client.local import LocalTransport
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import SystemClock, TestClock
from certwright.kube.util.executor import Inline
from certwright.resources.table import CERTIFICATES
from support.started import started_store
from support.world import CONTROLLER, START, World, start_once


class LiveWorld(World):
    """A world whose controllers work by the wall clock."""

    async def start_controllers(self, **options: Any) -> Controllers:
        """Start (again), with empty caches."""
        await self.stop_controllers()
        transport = LocalTransport(self.recording.handle, CONTROLLER)
        client = Client(transport, user_agent="certwright-controllers")
        self.controllers = Controllers(client, SystemClock(), Inline(), Settings(**options))
        self.controllers.start()
        await self.controllers.wait_synced()
        return self.controllers

    async def has_issued(self, name: str) -> bool:
        """Whether the Certificate is Ready."""
        try:
            certificate = await self.certificate(name)
        except NotFound:
            return False
        return conditions.is_true(certificate.status.conditions, "Ready")

    async def have_issued(self, number: int) -> bool:
        """Whether so many Certificates are Ready."""
        certificates = (await self.client.list(CERTIFICATES, "default")).items
        return (
            sum(conditions.is_true(certificate.status.conditions, "Ready") for certificate in certificates)
            == number
        )


async def eventually(true: Callable[[], Awaitable[bool]], *, within_s: float = 60.0) -> None:
    """Return when it is so. Raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        while not await true():  # noqa: ASYNC110 - other tasks have no event for it
            await asyncio.sleep(0.02)


@asynccontextmanager
async def live_world(**options: Any) -> AsyncIterator[LiveWorld]:
    """A running world."""
    world = LiveWorld(await started_store("world", start_once), TestClock(START))
    try:
        await world.start_server()
        await world.start_controllers(**options)
        yield world
    finally:
        await world.close()
