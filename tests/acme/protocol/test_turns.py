"""New orders and readings of authorizations take turns."""

from __future__ import annotations

import asyncio

import pytest

from certwright.acme.protocol.messages import Action
from certwright.acme.protocol.order_lock import Turns
from support.waiting import turns, until

ORDER, AUTHORIZATION = Action.NEW_ORDER, Action.AUTHORIZATION


class Scene:
    """Requests that are under way until they are told to end."""

    def __init__(self, *, at_most_s: float = 60.0) -> None:
        self.turns = Turns(at_most_s=at_most_s)
        self.inside: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, kind: Action) -> None:
        """Have one wait for its turn."""
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._ask(name, kind))
        await turns(5)

    async def end(self, name: str) -> None:
        """The server has answered."""
        self._ends[name].set()
        await turns(5)

    async def cancel(self, name: str) -> None:
        """Nobody wants the answer any more."""
        self._tasks[name].cancel()
        await turns(5)

    async def _ask(self, name: str, kind: Action) -> None:
        await self.turns.enter(kind)
        self.inside.append(name)
        try:
            await self._ends[name].wait()
        finally:
            self.inside.remove(name)
            self.turns.leave(kind)


async def test_the_two_kinds_are_never_under_way_together_and_take_turns() -> None:
    scene = Scene()
    await scene.begin("order 1", ORDER)
    await scene.begin("order 2", ORDER)
    await scene.begin("authorization 1", AUTHORIZATION)
    await scene.begin("order 3", ORDER)
    await scene.begin("authorization 2", AUTHORIZATION)
    assert scene.inside == ["order 1", "order 2"]
    await scene.end("order 1")
    assert scene.inside == ["order 2"]
    await scene.end("order 2")
    assert scene.inside == ["authorization 1", "authorization 2"]
    await scene.end("authorization 1")
    await scene.end("authorization 2")
    assert scene.inside == ["order 3"]


async def test_other_requests_wait_for_nobody() -> None:
    scene = Scene()
    await scene.begin("order", ORDER)
    await scene.begin("finalize", Action.FINALIZE)
    assert scene.inside == ["order", "finalize"]


@pytest.mark.parametrize("waits", ["before its turn", "in its turn"])
async def test_who_gives_up_keeps_nobody_out(waits: str) -> None:
    scene = Scene()
    await scene.begin("order 1", ORDER)
    await scene.begin("authorization", AUTHORIZATION)
    await scene.begin("order 2", ORDER)
    if waits == "in its turn":
        await scene.end("order 1")
        assert scene.inside == ["authorization"]
    await scene.cancel("authorization")
    await scene.end("order 1")
    assert scene.inside == ["order 2"]
    await scene.end("order 2")
    await scene.begin("authorization 2", AUTHORIZATION)
    assert scene.inside == ["authorization 2"]


async def test_a_server_that_takes_long_is_not_waited_for() -> None:
    scene = Scene(at_most_s=0.01)
    await scene.begin("order", ORDER)
    await scene.begin("authorization", AUTHORIZATION)
    await until(lambda: scene.inside == ["order", "authorization"])
    await scene.end("order")
    await scene.end("authorization")
    await scene.begin("order 2", ORDER)
    assert scene.inside == ["order 2"]
