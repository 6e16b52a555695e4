"""Candidates against our own API server, on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest

from certwright.kube.api.core import LEASES, Lease
from certwright.kube.api.errors import Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.runtime.lease import FencedTransport, LeaderElector, LeaseTiming
from certwright.kube.util.http_messages import Request, Response
from support.world import ADMIN, World

NAME = "cert-manager-controller"


class Line:
    """A connection that can be cut, left hanging, or lose the answers (`mute`)."""

    def __init__(self, handler: Callable[[Request], Awaitable[Response]]) -> None:
        self._handler = handler
        self.state = "up"
        self.requests: list[str] = []

    async def handle(self, request: Request) -> Response:
        self.requests.append(request.method)
        if self.state == "cut":
            raise Unreachable("cut off")
        if self.state == "hangs":
            await asyncio.Event().wait()
        answer = await self._handler(request)
        if self.state == "mute":
            await asyncio.Event().wait()
        return answer


class Runner:
    """A candidate that runs; `log` tells what became of it."""

    def __init__(self, world: World, identity: str) -> None:
        self.line = Line(world.server.handle)
        client = Client(LocalTransport(self.line.handle, ADMIN), user_agent="test", clock=world.clock)
        self.elector = LeaderElector(
            client, world.clock, namespace="kube-system", name=NAME, identity=identity, jitter=lambda: 0.5
        )
        self.log: list[str] = []
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            await self.elector.acquire()
            self.log.append("acquired")
            await self.elector.keep()
            self.log.append("lost")

    async def die(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


Start = Callable[[str], Runner]


@pytest.fixture
async def start(world: World) -> AsyncIterator[Start]:
    """Starts candidates, which die with the test."""
    runners: list[Runner] = []

    def start_one(identity: str) -> Runner:
        runners.append(Runner(world, identity))
        return runners[-1]

    yield start_one
    for runner in runners:
        await runner.die()


async def lease(world: World) -> Lease:
    return await world.client.get(LEASES, NAME, "kube-system")


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


async def test_the_first_holds_the_lease_and_keeps_it(world: World, start: Start) -> None:
    one = start("one")
    await world.settle()
    two = start("two")
    await world.advance(seconds(600))
    assert (one.log, two.log) == (["acquired"], [])
    assert two.elector.holder == "one"
    spec = (await lease(world)).spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("one", 60, 0)
    assert (spec.acquire_time, spec.renew_time) == (
        "2026-01-01T00:00:00.000000Z",
        "2026-01-01T00:10:00.000000Z",
    )
    # One request for each renewal, as client-go makes.
    assert one.line.requests[2:] == ["PUT"] * 40


async def test_a_dead_holder_is_followed_within_the_duration_and_a_look(world: World, start: Start) -> None:
    one, two = start("one"), start("two")
    await world.advance(seconds(100))
    await one.die()
    last = world.clock.now()
    while not two.log:
        await world.advance(seconds(1))
    assert seconds(40) < world.clock.now() - last <= seconds(60 + 18)
    assert (await lease(world)).spec.lease_transitions == 1


async def test_a_dead_holder_is_followed_when_its_lease_expires_and_not_a_look_later(
    world: World, start: Start
) -> None:
    one = start("one")
    await world.settle()
    two = start("two")
    await world.advance(seconds(1))
    await one.die()
    await world.advance(seconds(58))
    assert not two.log
    await world.advance(seconds(2))
    assert two.log == ["acquired"]


async def test_a_holder_that_leaves_in_the_middle_of_a_renewal_lets_the_lease_go_all_the_same(
    world: World, start: Start
) -> None:
    one = start("one")
    await world.settle()
    one.line.state = "mute"
    before = (await lease(world)).spec.renew_time
    await world.advance(seconds(16))
    assert (await lease(world)).spec.renew_time != before
    await one.die()
    one.line.state = "up"
    await one.elector.release()
    assert (await lease(world)).spec.holder_identity == ""


async def test_a_holder_that_leaves_after_it_was_followed_leaves_the_lease_to_the_next(
    world: World, start: Start
) -> None:
    one = start("one")
    await world.settle()
    await one.die()
    current = await lease(world)
    theirs = msgspec.structs.replace(current.spec, holder_identity="two")
    await world.client.update(LEASES, msgspec.structs.replace(current, spec=theirs))
    await one.elector.release()
    assert (await lease(world)).spec.holder_identity == "two"


async def test_a_holder_that_leaves_lets_the_next_in_at_its_next_look(world: World, start: Start) -> None:
    one, two = start("one"), start("two")
    await world.advance(seconds(100))
    await one.die()
    await one.elector.release()
    assert not one.elector.is_held
    assert (await lease(world)).spec.holder_identity == ""
    await world.advance(seconds(18))
    assert two.log == ["acquired"]


@pytest.mark.parametrize("state", ["cut", "hangs"])
async def test_a_holder_that_is_cut_off_gives_up_before_the_others_may_begin(
    world: World, start: Start, state: str
) -> None:
    one, two = start("one"), start("two")
    await world.advance(seconds(90))
    one.line.state = state
    both = False
    for _ in range(120):
        await world.advance(seconds(1))
        both = both or (one.elector.is_held and two.elector.is_held)
        if len(one.log) == 2 and not two.log:
            assert not one.elector.is_held
    assert not both
    assert (one.log, two.log) == (["acquired", "lost"], ["acquired"])
    one.line.state = "up"
    await world.advance(seconds(100))
    assert one.log == ["acquired", "lost"]
    assert one.elector.holder == "two"


@pytest.mark.parametrize(("state", "duration_s"), [("hangs", 16), ("cut", 20)])
async def test_a_renewal_that_fails_leaves_time_for_another_one(
    world: World, start: Start, state: str, duration_s: float
) -> None:
    one = start("one")
    await world.settle()
    one.line.state = state
    await world.advance(seconds(duration_s))
    one.line.state = "up"
    await world.advance(seconds(60))
    assert one.log == ["acquired"]
    assert one.elector.is_held


async def test_a_lease_that_another_wrote_over_is_lost_at_the_next_renewal(
    world: World, start: Start
) -> None:
    one = start("one")
    await world.settle()
    spec = {"holderIdentity": "bully", "leaseDurationSeconds": 3600}
    await world.client.patch(LEASES, NAME, "kube-system", {"spec": spec})
    await world.advance(seconds(15))
    assert one.log == ["acquired", "lost"]


async def test_the_clock_of_the_other_does_not_count(world: World, start: Start) -> None:
    one = start("one")
    await world.settle()
    await one.die()
    spec = {"renewTime": "1999-01-01T00:00:00.000000Z"}
    await world.client.patch(LEASES, NAME, "kube-system", {"spec": spec})
    two = start("two")
    await world.advance(seconds(59))
    assert two.log == []
    await world.advance(seconds(18))
    assert two.log == ["acquired"]


async def test_of_many_who_begin_together_one_holds_the_lease(world: World, start: Start) -> None:
    runners = [start(f"r{number}") for number in range(8)]
    await world.advance(seconds(300))
    assert [runner.log for runner in runners if runner.log] == [["acquired"]]


async def test_nothing_is_changed_through_a_fence_that_is_closed() -> None:
    async def handle(request: Request) -> Response:
        return Response(200, {}, b"{}")

    is_open = True
    fence = FencedTransport(LocalTransport(handle, ADMIN), lambda: is_open)
    assert (await fence.request("PUT", "/x", headers={})).status == 200
    is_open = False
    assert (await fence.request("GET", "/x", headers={})).status == 200
    for method in ("PUT", "POST", "PATCH", "DELETE"):
        with pytest.raises(Unreachable, match="another replica may have taken over"):
            await fence.request(method, "/x", headers={})


@pytest.mark.parametrize(
    ("timing", "sentence"),
    [
        (LeaseTiming(retry_period=seconds(0)), "the retry period must be longer"),
        (LeaseTiming(retry_period=seconds(34)), "the renew deadline must be longer than 1.2 retry periods"),
        (
            LeaseTiming(renew_deadline=seconds(60)),
            "the lease duration must be longer than the renew deadline",
        ),
        (
            LeaseTiming(duration=seconds(0.9), renew_deadline=seconds(0.8), retry_period=seconds(0.1)),
            "one second at least",
        ),
    ],
)
def test_terms_that_make_no_sense_are_refused(timing: LeaseTiming, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        timing.check()
