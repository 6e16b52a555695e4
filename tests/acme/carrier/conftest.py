"""A server that answers as its path says, a BIND, and transports and solvers by way of a child."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from acme.carrier.children import disregard_those_of_others
from certwright.acme.carrier.child import Child
from certwright.acme.carrier.choice import Transports
from certwright.acme.carrier.transport import CarriedTransport
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.messages import Action, Request
from certwright.acme.protocol.transport import TlsOptions
from certwright.acme.solvers.contract import Solver, Task, Updating
from support.bind import Bind, running_bind

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Server:
    """`/hang` is never answered; anything else says how long the body was. `asked` counts the requests that
    hang, and `gone` is set when one of them is broken off."""

    url: str = ""
    hanging: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def get(self, path: str = "/") -> Request:
        """A request to this server."""
        return Request(Action.DIRECTORY, "GET", self.url + path)

    def post(self, body: bytes) -> Request:
        """A request with a body."""
        return Request(Action.NEW_ORDER, "POST", self.url + "/", body)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """What this server does."""
        if request.path == "/hang":
            self.hanging.release()
            try:
                await asyncio.Event().wait()
            finally:
                self.gone.set()
        body = await request.read()
        return web.Response(text=str(len(body)), headers={"Replay-Nonce": "one"})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """One on loopback, without TLS."""
    made = Server()
    runner = web.ServerRunner(web.Server(made.answer, handler_cancellation=True), shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


SYSTEM = TlsOptions()


def inside(tls: TlsOptions = SYSTEM, timeout_s: float = 200.0) -> HttpTransport:
    """A transport of this process itself."""
    return HttpTransport(tls, user_agent="certwright/test", now=lambda: NOW, timeout_s=timeout_s)


def carried(child: Child, tls: TlsOptions = SYSTEM, timeout_s: float = 200.0) -> CarriedTransport:
    """A transport by way of that child."""
    return CarriedTransport(
        child,
        tls,
        user_agent="certwright/test",
        now=lambda: NOW,
        timeout_s=timeout_s,
        make_inside=lambda: inside(tls, timeout_s),
    )


TXT = Task(type="dns-01", identifier="web.example.org", token="t", key="x" * 43, uid="u3")


def updating(bind: Bind, secret: str = "") -> Updating:
    """What the zone of that BIND is written by."""
    return Updating(
        server=("127.0.0.1", bind.port),
        servers=(bind.address,),
        authority_port=bind.port,
        tsig=("hmacsha256", secret or bind.secrets["hmacsha256"], "HMACSHA256"),
    )


def no_solver_here() -> Solver:
    """What must not be asked for."""
    raise AssertionError("this process writes itself")


@pytest.fixture(autouse=True)
def _of_this_test() -> None:
    disregard_those_of_others()


MakeChild = Callable[..., Child]
"""What `Child` is told, but for how patient it is: a busy machine takes its time to start one."""


@pytest.fixture
async def make_child() -> AsyncIterator[MakeChild]:
    """Makes some that are ended with the test."""
    made: list[Child] = []

    def make(*command: Any, **options: Any) -> Child:
        made.append(Child(*command, **{"start_s": 200.0, **options}))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
def child(make_child: MakeChild) -> Child:
    """One that is ended with the test."""
    return make_child()


@pytest.fixture
async def transports() -> AsyncIterator[Transports]:
    """Checks and solvers by way of a child."""
    made = Transports(user_agent="test", now=lambda: datetime.now(UTC), apart=True)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def bind() -> Iterator[Bind]:
    """One for all tests of a module."""
    with running_bind() as found:
        yield found
