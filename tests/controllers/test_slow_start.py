"""A start goes on for as long as there is something to read, and is given up when nothing comes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from certwright.controllers.cache.caches import Caches
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Request, Response
from certwright.kube.util.tasks import TaskSet
from support.waiting import turns
from support.world import CONTROLLER, World, make_world

# One list after the other, each sooner than the patience ends, all of them later.
A_LIST_S, PATIENCE_S = 60.0, 120.0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with make_world(controllers=False) as made:
        yield made


def is_list(request: Request) -> bool:
    return request.method == "GET" and "watch=" not in request.target


async def test_a_start_that_takes_long_is_waited_for_while_lists_come(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = asyncio.Lock()
    loop = asyncio.get_running_loop()
    real, passed_s = loop.time, 0.0
    # The loop's clock is put forward: a minute that has passed for it, is none in which a machine is slow.
    monkeypatch.setattr(loop, "time", lambda: real() + passed_s)

    async def slow(request: Request) -> Response:
        nonlocal passed_s
        if is_list(request):
            async with turn:
                passed_s += A_LIST_S
                await asyncio.sleep(0)
        return await world.server.handle(request)

    tasks = TaskSet()
    caches = Caches(Client(LocalTransport(slow, CONTROLLER), user_agent="test"), SystemClock())
    caches.start(tasks)
    try:
        await caches.wait_synced(patience_s=PATIENCE_S)
        assert caches.synced
        assert passed_s > 2 * PATIENCE_S
    finally:
        await tasks.close()


async def test_a_start_is_given_up_when_nothing_comes(world: World) -> None:
    never = asyncio.Event()

    async def silent(request: Request) -> Response:
        if is_list(request) and "/secrets" in request.target:
            await never.wait()
        return await world.server.handle(request)

    tasks = TaskSet()
    caches = Caches(Client(LocalTransport(silent, CONTROLLER), user_agent="test"), SystemClock())
    caches.start(tasks)
    with pytest.raises(TimeoutError):
        await caches.wait_synced(patience_s=0.5)
    await tasks.close()


async def test_a_wait_that_is_broken_off_leaves_nothing_to_complain_about(world: World) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    # Nobody has started it, so that nothing comes.
    caches = Caches(Client(LocalTransport(world.server.handle, CONTROLLER), user_agent="test"), SystemClock())
    before = asyncio.all_tasks()
    waiting = asyncio.ensure_future(caches.wait_synced())
    await turns()
    assert len(asyncio.all_tasks() - before) > 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await turns()
    assert asyncio.all_tasks() - before == set()
    gc.collect()
    assert complaints == []
