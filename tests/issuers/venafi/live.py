"""The real controllers and API server on the wall clock: HTTP has a clock of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from certwright.controllers.manager import Controllers
from certwright.controllers.settings import Settings
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.errors import NotFound
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock, TestClock
from certwright.kube.util.executor import Inline
from certwright.resources.issuer import IssuerSpec
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from issuers.venafi.conftest import secret_of, spec_of
from support.venafi.server import FakeVenafi
from support.world import CONTROLLER, START, World


class Live(World):
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

    async def add_issuer(self, fake: FakeVenafi, product: str = "tpp") -> None:
        """The Issuer `venafi` and its Secret."""
        meta = SecretMeta(name="login", namespace="default")
        await self.create(SECRETS, Secret(metadata=meta, data=secret_of(product, fake)))
        await self.create(ISSUERS, make_issuer("venafi", IssuerSpec(venafi=spec_of(product, fake))))

    async def add_certificate(self, name: str, annotations: Mapping[str, str] | None = None) -> None:
        """A Certificate of that issuer."""
        made = make_certificate(name, "venafi", common_name=f"{name}.example.com")
        meta = msgspec.structs.replace(made.metadata, annotations=annotations or {})
        await self.create(CERTIFICATES, msgspec.structs.replace(made, metadata=meta))

    async def has_issued(self, name: str) -> bool:
        """Whether the Certificate is Ready."""
        try:
            certificate = await self.certificate(name)
        except NotFound:
            return False
        return conditions.is_true(certificate.status.conditions, "Ready")


@asynccontextmanager
async def live_world(**options: Any) -> AsyncIterator[Live]:
    world = Live(MemoryStore(), TestClock(START))
    try:
        await world.start_server()
        await world.start_controllers(**options)
        yield world
    finally:
        await world.close()
