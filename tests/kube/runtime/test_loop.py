from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from certwright.kube.api.errors import Conflict, Details, Forbidden, TooManyRequests, Unreachable
from certwright.kube.api.meta import ObjectKey
from certwright.kube.runtime.controller import Controller, Reconcile, Result
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import TestClock
from kube.runtime.busy import busy, busy_for
from support.waiting import turns

A, B = ObjectKey("n", "a"), ObjectKey("n", "b")


@asynccontextmanager
async def working(reconcile: Reconcile, clock: TestClock, *, workers: int = 16) -> AsyncIterator[Controller]:
    controller = Controller("certificates", reconcile, WorkQueue(clock), workers=workers)
    task = asyncio.ensure_future(controller.run())
    try:
        yield controller
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_is_reconciled_and_then_all_is_idle() -> None:
    seen: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        seen.append(key)
        return Result()

    async with working(reconcile, TestClock()) as controller:
        controller.queue.add(A)
        assert not controller.idle
        await turns()
        assert seen == [A]
        assert controller.idle


async def test_two_keys_run_side_by_side_but_one_key_never_twice() -> None:
    running: list[ObjectKey] = []
    gate = asyncio.Event()

    async def reconcile(key: ObjectKey) -> Result:
        assert key not in running
        running.append(key)
        await gate.wait()
        running.remove(key)
        return Result()

    async with working(reconcile, TestClock()) as controller:
        for key in (A, B):
            controller.queue.add(key)
        await turns()
        controller.queue.add(A)
        await turns()
        assert running == [A, B]
        gate.set()
        await turns()
        assert controller.runs == 3
        assert controller.failures == 0


async def test_no_more_workers_than_asked_for() -> None:
    running = 0
    gate = asyncio.Event()

    async def reconcile(key: ObjectKey) -> Result:
        nonlocal running
        running += 1
        await gate.wait()
        return Result()

    async with working(reconcile, TestClock(), workers=3) as controller:
        for number in range(10):
            controller.queue.add(ObjectKey("n", str(number)))
        await turns()
        assert running == 3


async def test_the_latest_result_decides_when_it_is_woken() -> None:
    clock = TestClock()
    results = [Result(wake_at=clock.now() + timedelta(days=60)), Result(), Result()]
    runs: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        runs.append(key)
        return results.pop(0)

    async with working(reconcile, clock) as controller:
        controller.queue.add(A)
        await turns()
        clock.advance(timedelta(days=60))
        await turns()
        assert len(runs) == 2
        controller.queue.add(A)
        await turns()
        clock.advance(timedelta(days=600))
        await turns()
        assert len(runs) == 3


@asynccontextmanager
async def something_can_wait() -> AsyncIterator[list[ObjectKey]]:
    """The loop is busy, and a first pass leaves something that can wait; the keys of the passes."""
    clock, runs = TestClock(), list[ObjectKey]()

    async def reconcile(key: ObjectKey) -> Result:
        runs.append(key)
        return Result(when_idle=len(runs) == 1)

    async with working(reconcile, clock) as controller:
        async with busy(clock):
            controller.queue.add(A)
            yield runs
        await turns()


async def test_what_can_wait_is_done_by_another_pass_when_there_is_nothing_better_to_do() -> None:
    async with something_can_wait() as runs:
        await busy_for(timedelta(seconds=4))
        assert runs == [A]
    assert runs == [A, A]


async def test_what_can_wait_does_not_wait_for_ever() -> None:
    async with something_can_wait() as runs:
        await busy_for(timedelta(seconds=6))
        assert runs == [A, A]


async def test_a_failure_is_tried_again_and_told_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    clock = TestClock()

    async def reconcile(key: ObjectKey) -> Result:
        raise Forbidden("secrets is forbidden")

    async with working(reconcile, clock) as controller:
        controller.queue.add(A)
        for _ in range(10):
            await turns()
            clock.advance(timedelta(seconds=30))
        assert controller.failures == 10
    assert [r.getMessage() for r in caplog.records] == [
        "certificates: n/a: secrets is forbidden",
        "certificates: n/a: secrets is forbidden (failed 2 times in a row)",
        "certificates: n/a: secrets is forbidden (failed 4 times in a row)",
        "certificates: n/a: secrets is forbidden (failed 8 times in a row)",
    ]
    assert not any(r.exc_info for r in caplog.records)


async def test_a_bug_is_shown_with_its_traceback_and_stops_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[ObjectKey] = []

    async def reconcile(key: ObjectKey) -> Result:
        if key == A:
            raise KeyError("x")
        done.append(key)
        return Result()

    async with working(reconcile, TestClock(), workers=1) as controller:
        controller.queue.add(A)
        controller.queue.add(B)
        await turns()
    assert done == [B]
    assert "certificates: n/a: KeyError: 'x'" in caplog.text
    assert "Traceback" in caplog.text


async def test_a_conflict_is_everyday_business(caplog: pytest.LogCaptureFixture) -> None:
    clock = TestClock()
    outcomes: list[Exception | None] = [Conflict("the object has been modified"), None]

    async def reconcile(key: ObjectKey) -> Result:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        return Result()

    caplog.set_level(logging.INFO)
    async with working(reconcile, clock) as controller:
        controller.queue.add(A)
        await turns()
        clock.advance(timedelta(seconds=1))
        await turns()
    assert outcomes == []
    assert caplog.records == []


async def test_a_server_that_is_away_is_reported_once_for_all_keys(caplog: pytest.LogCaptureFixture) -> None:
    clock = TestClock()
    away = True

    async def reconcile(key: ObjectKey) -> Result:
        if away:
            raise Unreachable("connection refused by https://127.0.0.1:1")
        return Result()

    async with working(reconcile, clock) as controller:
        for number in range(20):
            controller.queue.add(ObjectKey("n", str(number)))
        for _ in range(3):
            await turns()
            clock.advance(timedelta(seconds=30))
        assert len(caplog.records) == 1
        away = False
        await turns()
        clock.advance(timedelta(seconds=30))
        await turns()
        away = True
        controller.queue.add(A)
        await turns()
    assert len(caplog.records) == 2


async def test_stopping_cancels_what_is_under_way() -> None:
    cancelled = asyncio.Event()

    async def reconcile(key: ObjectKey) -> Result:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return Result()

    async with working(reconcile, TestClock()) as controller:
        controller.queue.add(A)
        await turns()
    assert cancelled.is_set()


async def test_a_key_rests_as_long_as_the_server_asks() -> None:
    clock, seen = TestClock(), []

    async def reconcile(key: ObjectKey) -> Result:
        seen.append(key)
        if len(seen) == 1:
            raise TooManyRequests("busy", details=Details(retry_after_seconds=90))
        return Result()

    async with working(reconcile, clock) as controller:
        controller.queue.add(A)
        await turns()
        clock.advance(timedelta(seconds=89))
        await turns()
        assert len(seen) == 1
        clock.advance(timedelta(seconds=1))
        await turns()
        assert len(seen) == 2
