"""A whole certwright in one process: the real API server over the memory store, the real controllers, a clock
that the test moves. No sockets, no threads, no sleeping, no polling.

    async def test_something(world):
        await world.apply(SELF_SIGNED_ISSUER, CERTIFICATE)
        await world.settle()
        assert world.ready("default", "web")
        await world.advance(timedelta(days=60))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from certwright.admission import certificate_kinds
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.manager import ControllerManager
from certwright.controllers.settings import Settings
from certwright.controllers.shims.annotations import ShimOptions
from certwright.kube.api import conditions
from certwright.kube.api.core import EVENTS, SECRETS, Event, Secret
from certwright.kube.api.errors import NotFound
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import Condition
from certwright.kube.apiserver.model import offload
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.store.contract import Store
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock, TestClock
from certwright.kube.util.executor import Inline
from certwright.kube.util.http_messages import Identity, Request, Response
from certwright.resources.certificate import Certificate
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.table import CERTIFICATES
from support.definitions import compiled_schemas_shared, started_store

P = ParamSpec("P")
T = TypeVar("T")

ADMIN = Identity("kubernetes-admin", groups=("system:masters", "system:authenticated"))
CONTROLLER = Identity(
    "system:serviceaccount:cert-manager:cert-manager",
    groups=("system:serviceaccounts", "system:serviceaccounts:cert-manager", "system:authenticated"),
)
START = datetime(2026, 1, 1, tzinfo=UTC)
_SOON_S = 0.1
"""A store with many watchers tells them within half of this time: on the real clock, not on the test's."""


def condition_of(obj: Any, kind: str) -> Condition:
    """The condition of an object, which has it."""
    condition: Condition | None = conditions.find(obj.status.conditions, kind)
    assert condition is not None, f"{obj.metadata.name} has no condition {kind}"
    return condition


@dataclass(slots=True)
class Write:
    """One write that reached the API server and changed something."""

    method: str
    path: str
    by: str
    status: int


@dataclass(slots=True)
class Recording:
    """Stands in front of the API server and writes down who wrote what."""

    handler: Callable[[Request], Awaitable[Response]]
    writes: list[Write] = field(default_factory=list)
    requests: int = 0

    async def handle(self, request: Request) -> Response:
        """Pass the request on and remember it when it was a write that succeeded."""
        self.requests += 1
        response = await self.handler(request)
        if request.method not in ("GET", "HEAD") and response.status < 400:
            user = request.user.name if request.user else ""
            self.writes.append(Write(request.method, request.target.partition("?")[0], user, response.status))
        return response

    def object_writes(self) -> list[Write]:
        """The controllers' writes that are not Events."""
        return [w for w in self.writes if w.by == CONTROLLER.name and "/events" not in w.path]

    def event_writes(self) -> list[Write]:
        """The Events that the controllers wrote."""
        return [w for w in self.writes if w.by == CONTROLLER.name and "/events" in w.path]


async def settle() -> None:
    """Run until nothing is left to do but wait for the clock.

    "Nothing to do" is read off the loop itself: no callback is ready, and no timer is due now or soon. That
    is private to asyncio, and far more certain than asking every part whether it thinks that it is idle.
    """
    loop = asyncio.get_running_loop()
    quiet = 0
    while quiet < 3:
        await asyncio.sleep(0)
        ready = loop._ready  # type: ignore[attr-defined] # see the docstring
        soon = loop.time() + _SOON_S
        due = any(t.when() <= soon for t in loop._scheduled if not t.cancelled())  # type: ignore[attr-defined]
        quiet = 0 if ready or due else quiet + 1


class World:
    """The parts, and the few verbs that tests are written in."""

    def __init__(self, store: Store, clock: TestClock) -> None:
        # No threads: what is large, or not compiled yet, is worked on beside the loop otherwise.
        self._threads = offload.executor
        setattr(offload, "executor", Inline)  # noqa: B010 - a name that mypy takes for a function's
        self.store = store
        self.clock = clock
        self.server = ApiServer(
            store, clock, authenticator=lambda _: None, bookmark_every_s=None, extensions=certificate_kinds()
        )
        self.recording = Recording(self.server.handle)
        self.client = Client(LocalTransport(self.recording.handle, ADMIN), user_agent="test")
        self.controllers: ControllerManager | None = None
        self.on_close: list[Callable[[], Awaitable[None]]] = []

    async def start_server(self, *, has_definitions: bool) -> None:
        """Start the API server, with schemas that other worlds have compiled. Where the store has our
        definitions, to compare them would cost time in every test."""
        with compiled_schemas_shared():
            await self.server.start([] if has_definitions else custom_resource_definitions())

    async def start_controllers(self, *, mine: Mine | None = None, **options: Any) -> ControllerManager:
        """Start (or start again, with empty caches) the controllers and wait until they are in step.

        Without Gateways unless `shims` says otherwise: their definitions are not installed, and to look for
        them twice a minute takes hours in a test that moves the clock by years.
        """
        options.setdefault("shims", ShimOptions(gateways=False, listener_sets=False))
        await self.stop_controllers()
        transport = LocalTransport(self.recording.handle, CONTROLLER)
        client = Client(transport, user_agent="certwright-controllers", clock=self.clock)
        self.controllers = ControllerManager(client, self.clock, Inline(), Settings(**options), mine)
        self.controllers.start()
        await self.settle()
        return self.controllers

    @property
    def manager(self) -> ControllerManager:
        """The controllers, which have been started."""
        assert self.controllers is not None
        return self.controllers

    async def stop_controllers(self) -> None:
        """Stop them as a crash would: nothing is written any more."""
        if self.controllers is not None:
            await self.controllers.close()
            self.controllers = None

    async def settle(self) -> None:
        """Run until only the clock can make anything happen."""
        await settle()

    async def advance(self, delta: timedelta) -> None:
        """Move the clock forward, stopping at every moment that somebody waits for."""
        await self.advance_to(self.clock.now() + delta)

    async def advance_to(self, target: datetime) -> None:
        """Move the clock forward to `target`, stopping at every moment that somebody waits for."""
        await self.settle()
        while (moment := self.clock.next_deadline()) is not None and moment <= target:
            self.clock.set_now(max(moment, self.clock.now()))
            await self.settle()
        self.clock.set_now(target)
        await self.settle()

    async def create(self, kind: Kind[T], obj: T) -> T:
        """Create one object as the administrator."""
        return await self.client.create(kind, obj)

    async def add(self, kind: Kind[T], obj: T) -> None:
        """Create one object as the administrator, and settle."""
        await self.client.create(kind, obj)
        await self.settle()

    async def patch(
        self, kind: AnyKind, name: str, patch: object, *, namespace: str = "default", **options: Any
    ) -> None:
        """Patch one object as the administrator, and settle."""
        place = namespace if kind.namespaced else ""
        await self.client.patch(kind, name, place, patch, **options)
        await self.settle()

    async def delete(self, kind: AnyKind, name: str, *, namespace: str = "default") -> None:
        """Delete one object as the administrator, and settle."""
        await self.client.delete(kind, name, namespace if kind.namespaced else "")
        await self.settle()

    async def get(self, kind: Kind[T], name: str, namespace: str = "default") -> T:
        """Read one object as the administrator."""
        return await self.client.get(kind, name, namespace if kind.namespaced else "")

    async def certificate(self, name: str, namespace: str = "default") -> Certificate:
        """The Certificate of that name."""
        return await self.client.get(CERTIFICATES, name, namespace)

    async def secret(self, name: str, namespace: str = "default") -> Secret:
        """The Secret of that name."""
        return await self.client.get(SECRETS, name, namespace)

    async def is_ready(self, name: str, namespace: str = "default") -> bool:
        """Whether the Certificate's condition Ready is True."""
        return conditions.is_true((await self.certificate(name, namespace)).status.conditions, "Ready")

    async def renew(self, name: str = "web") -> None:
        """Mark the Certificate as `certwright renew` does, and settle."""
        issuing = Condition(
            "Issuing", "True", "ManuallyTriggered", "Certificate re-issuance manually triggered"
        )
        current, now = (await self.certificate(name)).status.conditions, self.clock.now()
        status = {"status": {"conditions": conditions.with_condition(current, issuing, now)}}
        await self.patch(CERTIFICATES, name, status, subresource="status")

    async def condition(self, name: str, kind: str) -> Condition:
        """The condition of the Certificate, which has it."""
        return condition_of(await self.certificate(name), kind)

    async def events(self, namespace: str = "default") -> list[Event]:
        """The Events of a namespace."""
        return (await self.client.list(EVENTS, namespace)).items

    async def close(self) -> None:
        """Stop all, first what `on_close` has."""
        while self.on_close:
            await self.on_close.pop()()
        setattr(offload, "executor", self._threads)  # noqa: B010 - see __init__
        await self.stop_controllers()
        await self.server.close()


@asynccontextmanager
async def make_world(
    *, store: Store | None = None, controllers: bool = True, **options: Any
) -> AsyncIterator[World]:
    """A running world; `controllers=False` leaves them out.

    Without a `store`, its server has started before.
    """
    world = World(store or await started_store("world", start_once), TestClock(START))
    try:
        await world.start_server(has_definitions=store is None)
        if controllers:
            await world.start_controllers(**options)
        yield world
    finally:
        await world.close()


async def start_once(store: MemoryStore) -> None:
    world = World(store, TestClock(START))
    await world.start_server(has_definitions=False)
    await world.settle()
    await world.close()


class LiveWorld(World):
    """A world whose controllers work by the wall clock."""

    async def start_controllers(self, **options: Any) -> ControllerManager:
        """Start (again), with empty caches."""
        await self.stop_controllers()
        transport = LocalTransport(self.recording.handle, CONTROLLER)
        client = Client(transport, user_agent="certwright-controllers")
        self.controllers = ControllerManager(client, SystemClock(), Inline(), Settings(**options))
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
    world = LiveWorld(await started_store("world", start_once), TestClock(START))
    try:
        await world.start_server(has_definitions=True)
        await world.start_controllers(**options)
        yield world
    finally:
        await world.close()
