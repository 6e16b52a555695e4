"""The watch on one Lease: changes arrive without polling; a server that serves no watch is asked seldom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest

from certwright.kube.api.core import LEASES
from certwright.kube.api.errors import Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.runtime.lease import LeaderElector
from certwright.kube.util.http_messages import Request, Response
from support.world import ADMIN, World

Answer = Callable[[Request], Awaitable[Response]]
HOUR = timedelta(hours=1)


def refused(code: int, reason: str) -> Answer:
    status = {"kind": "Status", "status": "Failure", "reason": reason, "code": code}

    async def answer(_: Request) -> Response:
        return Response(code, {}, msgspec.json.encode(status))

    return answer


async def empty(_: Request) -> Response:
    return Response(200, {}, b"")


async def garbage(_: Request) -> Response:
    return Response(200, {}, b'{"type":"MODIFIED","object":{"metadata":{"name":"x"},"spec":7}}\n')


async def unreachable(_: Request) -> Response:
    raise Unreachable("cut off")


async def silence(_: Request) -> Response:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


class Member:
    """A candidate of a group, that follows its Lease; `watches` replaces the server's answer to a watch."""

    def __init__(self, world: World) -> None:
        self.watches: Answer | None = None
        self.opened = self.requests = 0
        self._world = world
        client = Client(LocalTransport(self._handle, ADMIN), user_agent="test", clock=world.clock)
        self.elector = LeaderElector(
            client,
            world.clock,
            namespace="kube-system",
            name="group",
            identity="members",
            jitter=lambda: 0.5,
            is_group=True,
        )
        self._task: asyncio.Task[None] | None = None

    async def _handle(self, request: Request) -> Response:
        self.requests += 1
        if "watch=true" in request.target:
            self.opened += 1
            if self.watches is not None:
                return await self.watches(request)
        return await self._world.server.handle(request)

    async def join(self) -> None:
        """Join the group and follow its Lease."""
        assert await self.elector.join(10)
        self._task = asyncio.ensure_future(self.elector.follow())
        await self._world.settle()

    async def end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def members(world: World) -> AsyncIterator[list[Member]]:
    made = [Member(world), Member(world)]
    for member in made:
        await member.join()
    yield made
    for member in made:
        await member.end()


async def test_a_call_reaches_the_other_members_and_not_the_caller(
    world: World, members: list[Member]
) -> None:
    one, two = (member.elector for member in members)
    await one.notify_group()
    await world.settle()
    assert two.changed.is_set()
    assert not one.changed.is_set()


async def test_renewals_are_no_news(world: World, members: list[Member]) -> None:
    one, two = (member.elector for member in members)
    for _ in range(5):
        await world.advance(timedelta(seconds=15))
        assert await one.join(10)
    await world.settle()
    assert not one.changed.is_set()
    assert not two.changed.is_set()


async def test_members_renew_without_conflicts(world: World, members: list[Member]) -> None:
    one, two = (member.elector for member in members)
    before = [member.requests for member in members]
    assert all(await asyncio.gather(one.join(10), two.join(10)))
    assert [member.requests for member in members] == [count + 1 for count in before]


async def test_another_holder_and_a_deletion_are_news(world: World, members: list[Member]) -> None:
    one = members[0].elector
    lease = await world.get(LEASES, "group", "kube-system")
    spec = msgspec.structs.replace(lease.spec, holder_identity="another")
    await world.client.update(LEASES, msgspec.structs.replace(lease, spec=spec))
    await world.settle()
    assert one.changed.is_set()
    assert one.holder == "another"
    # Although this process has held it until now.
    assert not await one.join(10)
    assert not one.is_held
    one.changed.clear()
    await world.client.delete(LEASES, "group", "kube-system")
    await world.settle()
    assert one.changed.is_set()
    assert await one.join(10)


@pytest.mark.parametrize(
    "answer",
    [
        refused(403, "Forbidden"),
        refused(410, "Expired"),
        refused(429, "TooManyRequests"),
        refused(500, "InternalError"),
        empty,
        garbage,
        unreachable,
        silence,
    ],
    ids=["403", "410", "429", "500", "empty", "garbage", "unreachable", "silence"],
)
async def test_a_server_that_serves_no_watch_is_asked_seldom_and_followed_when_it_does(
    world: World, answer: Answer
) -> None:
    member = Member(world)
    member.watches = answer
    await member.join()
    await world.advance(HOUR)
    assert member.opened <= 50
    member.watches = None
    await world.advance(timedelta(minutes=15))
    other = Member(world)
    await other.join()
    member.elector.changed.clear()
    await other.elector.notify_group()
    await world.settle()
    assert member.elector.changed.is_set()
    await member.end()
    await other.end()
