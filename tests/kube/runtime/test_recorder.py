from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.kube.api.core import NAMESPACES, SECRETS, Namespace, Secret, SecretMeta
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.runtime import recorder as recorder_module
from certwright.kube.runtime.recorder import Recorder, Type
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Request, Response
from kube.client.peers import Peer
from kube.runtime.busy import busy, busy_for
from support.waiting import turns

WEB = Secret(metadata=SecretMeta(name="web", namespace="n", uid="u1", resource_version="7"))


class EventServer(Peer):
    """Takes every Event; `status` can be set to refuse them; of `taken` more the name is there already;
    `answer_with` stands in for the Event in the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.taken = 0
        self.answer_with: bytes | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, request: Request) -> Response:
        self.requests.append(request)
        await self.gate.wait()
        if self.taken:
            self.taken -= 1
            return Response(409, {}, b'{"kind": "Status", "reason": "AlreadyExists", "code": 409}')
        body = request.body if self.answer_with is None else self.answer_with
        return Response(self.status, {}, body if self.status == 200 else b"{}")

    def bodies(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(request.body) for request in self.requests]

    def messages(self) -> list[str]:
        return [body["message"] for body in self.bodies()]


class Scene:
    """A recorder and the server that it writes to."""

    def __init__(self) -> None:
        self.server = EventServer()
        self.clock = TestClock()
        self.recorder = Recorder(self.server.client(), self.clock, "certwright-certificates")

    async def write(self, message: str = "it was issued", type: Type = "Normal") -> None:
        """Record an event about `WEB`, and wait until it was written or dropped."""
        self.recorder.event(SECRETS, WEB, type, "Reason", message)
        await self.recorder.flush()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    yield scene
    scene.server.gate.set()
    await scene.recorder.close()


async def test_an_event_says_what_happened_to_whom(scene: Scene) -> None:
    scene.recorder.event(SECRETS, WEB, "Normal", "Issued", "it was issued")
    assert scene.server.requests == []
    await scene.recorder.flush()
    (event,) = scene.server.bodies()
    assert re.fullmatch(r"web\.[0-9a-f]{16}", event["metadata"].pop("name"))
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "n"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Secret",
            "namespace": "n",
            "name": "web",
            "uid": "u1",
            "resourceVersion": "7",
        },
        "reason": "Issued",
        "message": "it was issued",
        "source": {"component": "certwright-certificates"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "type": "Normal",
        "reportingComponent": "certwright-certificates",
    }


async def test_equal_events_are_counted_on_the_first(scene: Scene) -> None:
    for _ in range(3):
        await scene.write("no issuer", "Warning")
        scene.clock.advance(timedelta(minutes=9))
    assert [r.method for r in scene.server.requests] == ["POST", "PATCH", "PATCH"]
    assert scene.server.bodies()[2] == {"count": 3, "lastTimestamp": "2026-01-01T00:18:00Z"}
    name = scene.server.bodies()[0]["metadata"]["name"]
    assert scene.server.requests[2].target == f"/api/v1/namespaces/n/events/{name}"


async def test_after_ten_minutes_of_quiet_it_is_a_new_event(scene: Scene) -> None:
    await scene.write("no issuer", "Warning")
    scene.clock.advance(timedelta(minutes=11))
    await scene.write("no issuer", "Warning")
    assert [r.method for r in scene.server.requests] == ["POST", "POST"]


async def test_an_event_that_has_been_tidied_away_is_made_again(scene: Scene) -> None:
    await scene.write()
    scene.server.status = NotFound.code
    await scene.write()
    assert [r.method for r in scene.server.requests] == ["POST", "PATCH", "POST"]


async def test_another_message_is_another_event_and_the_order_is_kept(scene: Scene) -> None:
    messages = [f"step {number}" for number in range(20)]
    for message in messages:
        scene.recorder.event(SECRETS, WEB, "Normal", "Step", message)
    await scene.recorder.flush()
    assert scene.server.messages() == messages


async def test_a_name_that_another_process_has_given_is_not_taken_for_this_event(scene: Scene) -> None:
    scene.server.taken = 1
    await scene.write()
    refused, written = scene.server.bodies()
    assert refused["metadata"]["name"] != written["metadata"]["name"]
    assert scene.server.messages() == ["it was issued"] * 2
    assert scene.recorder.dropped == 0


async def test_events_of_a_cluster_scoped_object_lie_in_the_default_namespace(scene: Scene) -> None:
    scene.recorder.event(NAMESPACES, Namespace(metadata=ObjectMeta(name="x")), "Normal", "R", "m")
    await scene.recorder.flush()
    assert scene.server.targets == ["POST /api/v1/namespaces/default/events"]
    assert "namespace" not in scene.server.bodies()[0]["involvedObject"]


async def test_a_long_message_and_a_long_name_are_cut(scene: Scene) -> None:
    long = Secret(metadata=SecretMeta(name="x" * 253, namespace="n"))
    scene.recorder.event(SECRETS, long, "Normal", "R", "é" * 600)
    await scene.recorder.flush()
    (event,) = scene.server.bodies()
    assert len(event["message"].encode()) <= 1024
    assert event["message"].endswith("é...")
    assert len(event["metadata"]["name"]) <= 253


@pytest.mark.parametrize(("status", "answer"), [(403, None), (200, b'"fine"')], ids=["refused", "no Event"])
async def test_an_event_that_the_server_does_not_take_is_dropped_and_the_next_one_is_tried(
    scene: Scene, caplog: pytest.LogCaptureFixture, status: int, answer: bytes | None
) -> None:
    scene.server.status, scene.server.answer_with = status, answer
    await scene.write("one")
    scene.server.status, scene.server.answer_with = 200, None
    await scene.write("two")
    assert scene.server.messages() == ["one", "two"]
    assert scene.recorder.dropped == 1
    assert "an event could not be written (1 so far)" in caplog.text


async def test_when_too_many_wait_the_caller_is_not_held_up(scene: Scene) -> None:
    scene.server.gate.clear()
    for number in range(recorder_module._WAITING + 5):
        scene.recorder.event(SECRETS, WEB, "Normal", "R", str(number))
    assert scene.recorder.dropped == 5


def record(scene: Scene, number: int) -> None:
    """One event of each of so many objects."""
    for n in range(number):
        meta = SecretMeta(name=f"s{n}", namespace="n", uid=f"u{n}")
        scene.recorder.event(SECRETS, Secret(metadata=meta), "Normal", "Made", "it was made")


async def test_on_an_idle_loop_events_are_written_at_once(scene: Scene) -> None:
    record(scene, 5)
    await turns(30)
    assert len(scene.server.requests) == 5


async def test_while_the_loop_is_busy_no_event_is_written_before_its_time(scene: Scene) -> None:
    async with busy(scene.clock):
        record(scene, 100)
        await busy_for(timedelta(seconds=4))
        assert scene.server.requests == []
        await busy_for(timedelta(seconds=2))
        assert len(scene.server.requests) == 100


async def test_events_that_have_waited_keep_their_time_and_their_order(scene: Scene) -> None:
    messages = [f"step {number}" for number in range(20)]
    async with busy(scene.clock):
        for message in messages:
            scene.recorder.event(SECRETS, WEB, "Normal", "Step", message)
        await busy_for(timedelta(seconds=6))
    assert scene.server.messages() == messages
    assert {body["firstTimestamp"] for body in scene.server.bodies()} == {"2026-01-01T00:00:00Z"}


async def test_when_the_rush_is_over_events_are_written_at_once(scene: Scene) -> None:
    async with busy(scene.clock):
        record(scene, 100)
        await busy_for(timedelta(seconds=1))
    await turns(500)
    assert len(scene.server.requests) == 100


async def test_a_loop_that_is_never_idle_builds_no_backlog(scene: Scene) -> None:
    async with busy(scene.clock):
        for second in range(12):
            record(scene, 200)
            await busy_for(timedelta(seconds=1))
            assert len(scene.server.requests) >= 200 * (second - 5)


async def test_a_flush_waits_for_no_idle_moment(scene: Scene) -> None:
    async with busy(scene.clock):
        began = scene.clock.monotonic()
        record(scene, 100)
        await turns(3)
        await scene.recorder.flush()
        assert len(scene.server.requests) == 100
        assert scene.clock.monotonic() - began < 4
