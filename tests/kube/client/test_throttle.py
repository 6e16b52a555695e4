from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from certwright.kube.api.core import CONFIG_MAPS
from certwright.kube.api.errors import Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.client.throttle import REQUEST_RANK, Throttle, ThrottledTransport, lift_where_fair
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import TestClock
from kube.client.peers import ALICE, Peer
from support.waiting import turns


async def advance(clock: TestClock, seconds: float) -> None:
    await turns()
    target = clock.now() + timedelta(seconds=seconds)
    while (moment := clock.next_deadline()) is not None and moment <= target:
        clock.set_now(moment)
        await turns()
    clock.set_now(target)
    await turns()


class Crowd:
    """Many who want to make a request each."""

    def __init__(self, throttle: Throttle, count: int) -> None:
        self.gone: list[int] = []
        self.tasks = [asyncio.ensure_future(self._one(throttle, number)) for number in range(count)]

    async def _one(self, throttle: Throttle, number: int) -> None:
        await throttle.take()
        self.gone.append(number)


async def test_a_burst_goes_at_once_and_the_others_in_their_order_at_the_rate() -> None:
    clock = TestClock()
    crowd = Crowd(Throttle(clock, qps=20, burst=50), 100)
    await turns()
    assert len(crowd.gone) == 50
    await advance(clock, 1.0)
    assert len(crowd.gone) == 70
    await advance(clock, 1.5)
    assert crowd.gone == list(range(100))


async def test_work_in_progress_goes_before_work_that_begins_and_a_cancelled_request_uses_no_turn() -> None:
    clock = TestClock()
    throttle = Throttle(clock, qps=1, burst=1)
    REQUEST_RANK.set(1.0)
    begins = Crowd(throttle, 4)
    await turns()
    REQUEST_RANK.set(0.0)
    goes_on = Crowd(throttle, 2)
    await turns()
    begins.tasks[1].cancel()
    await advance(clock, 2)
    assert (begins.gone, goes_on.gone) == ([0], [0, 1])
    await advance(clock, 2)
    assert begins.gone == [0, 2, 3]


async def test_what_was_not_used_is_saved_up_to_the_burst() -> None:
    clock = TestClock()
    throttle = Throttle(clock, qps=20, burst=50)
    Crowd(throttle, 50)
    await turns()
    clock.advance(timedelta(hours=1))
    crowd = Crowd(throttle, 60)
    await turns()
    assert len(crowd.gone) == 50


async def test_lifting_the_limit_lets_everybody_go_within_a_second() -> None:
    clock = TestClock()
    throttle = Throttle(clock, qps=1, burst=1)
    crowd = Crowd(throttle, 40)
    await turns()
    throttle.lift()
    await advance(clock, 1.0)
    assert len(crowd.gone) == 40


async def test_an_answer_of_429_holds_every_request_as_long_as_it_says() -> None:
    clock, peer = TestClock(), Peer()
    throttle = Throttle(clock, qps=100, burst=100)
    throttle.lift()
    transport = ThrottledTransport(LocalTransport(peer.handle, ALICE), throttle)
    client = Client(transport, user_agent="test", clock=clock)
    peer.answer(429, {}, retry_after="3")
    for _ in range(5):
        peer.answer(200, {"metadata": {"name": "a"}})
    first = asyncio.ensure_future(client.get(CONFIG_MAPS, "a", "n"))
    await turns()
    others = [asyncio.ensure_future(client.get(CONFIG_MAPS, "a", "n")) for _ in range(4)]
    await turns()
    assert len(peer.requests) == 1
    await advance(clock, 2.9)
    assert len(peer.requests) == 1
    await advance(clock, 0.1)
    await asyncio.gather(first, *others)
    assert len(peer.requests) == 6


async def test_nobody_is_held_for_longer_than_a_minute() -> None:
    clock = TestClock()
    throttle = Throttle(clock, qps=20, burst=50)
    throttle.hold(86400)
    crowd = Crowd(throttle, 1)
    await advance(clock, 59)
    assert crowd.gone == []
    await advance(clock, 1)
    assert crowd.gone == [0]


async def test_a_server_with_priority_and_fairness_is_asked_without_limit() -> None:
    clock, peer = TestClock(), Peer()
    throttle = Throttle(clock, qps=20, burst=50)
    peer.answers.append(Unreachable("not yet"))
    peer.answer(200, "ok", x_kubernetes_pf_flowschema_uid="4f5e")
    asking = asyncio.ensure_future(
        lift_where_fair(LocalTransport(peer.handle, ALICE), throttle, clock, "certwright")
    )
    await advance(clock, 5)
    await asking
    assert throttle.lifted
    assert peer.targets == ["HEAD /livez/ping"] * 2


async def test_a_server_without_it_keeps_the_limit_and_the_log_has_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, peer = TestClock(), Peer()
    throttle = Throttle(clock, qps=20, burst=50)
    peer.answer(404, {})
    with caplog.at_level("INFO"):
        await lift_where_fair(LocalTransport(peer.handle, ALICE), throttle, clock, "certwright")
    assert not throttle.lifted
    assert "limited to 20 per second (--kube-api-qps)" in caplog.text
