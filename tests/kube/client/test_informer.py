from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.errors import Unreachable
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.client.informer import Informer
from certwright.kube.util.clock import TestClock
from kube.client.peers import Peer, Stream
from support.waiting import turns

Change = tuple[str | None, str | None]


def wire(name: str, revision: int, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(revision)}} | more


def config_map(name: str, revision: int) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="n", resource_version=str(revision)))


class Observed:
    """An informer at work against a script, and what it has told."""

    def __init__(self, peer: Peer, clock: TestClock) -> None:
        self.peer = peer
        self.clock = clock
        self.informer = Informer(peer.client(clock=clock), CONFIG_MAPS, clock, jitter=lambda: 1.0)
        self.told: list[Change] = []
        self.informer.add_handler(self._hear)

    def _hear(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        self.told.append((_told(old), _told(new)))

    def news(self) -> list[Change]:
        reported, self.told = self.told, []
        return reported

    def problems(self) -> list[str]:
        return [self.informer.problem] if self.informer.problem else []

    def list_answer(self, revision: int, *items: dict[str, object]) -> None:
        self.peer.answer(200, {"metadata": {"resourceVersion": str(revision)}, "items": items})


def _told(obj: ConfigMap | None) -> str | None:
    return f"{obj.metadata.name}@{obj.metadata.resource_version}" if obj else None


@asynccontextmanager
async def following(*items: dict[str, object]) -> AsyncIterator[tuple[Observed, Stream]]:
    """An informer that has listed `items` at revision 10 and reads its watch."""
    observed = Observed(Peer(), TestClock())
    observed.list_answer(10, *items)
    stream = observed.peer.answer_stream()
    task = asyncio.ensure_future(observed.informer.run())
    await turns()
    try:
        yield observed, stream
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_is_synced_after_the_first_list_and_then_follows() -> None:
    async with following(wire("a", 3)) as (seen, stream):
        assert seen.informer.synced.is_set()
        assert seen.news() == [(None, "a@3")]
        stream.send(
            {"type": "ADDED", "object": wire("b", 11)},
            {"type": "MODIFIED", "object": wire("a", 12)},
            {"type": "DELETED", "object": wire("b", 13)},
        )
        await turns()
        assert seen.news() == [(None, "b@11"), ("a@3", "a@12"), ("b@11", None)]
        assert list(seen.informer.cache.keys()) == [ObjectKey("n", "a")]


async def test_an_event_that_comes_twice_is_told_once() -> None:
    async with following() as (seen, stream):
        stream.send({"type": "ADDED", "object": wire("a", 11)}, {"type": "ADDED", "object": wire("a", 11)})
        await turns()
        assert seen.news() == [(None, "a@11")]


async def test_an_own_write_is_told_at_once_and_its_event_is_no_news() -> None:
    async with following(wire("a", 3)) as (seen, stream):
        seen.news()
        seen.informer.put(config_map("a", 11))
        assert seen.news() == [("a@3", "a@11")]
        stream.send({"type": "MODIFIED", "object": wire("a", 11)})
        await turns()
        assert seen.news() == []


async def test_an_own_deletion_is_told_once() -> None:
    async with following(wire("a", 3)) as (seen, stream):
        seen.news()
        seen.informer.forget(config_map("a", 3))
        assert seen.news() == [("a@3", None)]
        stream.send({"type": "DELETED", "object": wire("a", 11)})
        await turns()
        assert seen.news() == []


async def test_listing_again_tells_what_vanished_and_what_changed() -> None:
    async with following(wire("a", 3), wire("b", 4), wire("c", 5)) as (seen, stream):
        seen.news()
        seen.list_answer(30, wire("a", 3), wire("c", 25), wire("d", 26))
        seen.peer.answer_stream()
        stream.send({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})
        await turns()
        assert seen.news() == [("c@5", "c@25"), (None, "d@26"), ("b@4", None)]
        assert stream.closed
        assert "resourceVersion=30" in seen.peer.targets[-1]


async def test_a_broken_connection_is_tried_again_after_a_pause(caplog: pytest.LogCaptureFixture) -> None:
    async with following(wire("a", 3)) as (seen, stream):
        stream.send({"type": "MODIFIED", "object": wire("a", 12)})
        stream.fail(Unreachable("the server closed the connection"))
        await turns()
        assert seen.problems() == ["the server closed the connection"]
        assert len(seen.peer.requests) == 2
        again = seen.peer.answer_stream()
        seen.clock.advance(timedelta(seconds=1))
        again.send({"type": "DELETED", "object": wire("a", 13)})
        await turns()
        assert "resourceVersion=12" in seen.peer.targets[-1]
        assert seen.problems() == []
        assert len(seen.informer.cache) == 0
    assert "configmaps cannot be followed: the server closed the connection" in caplog.text


async def test_rubbish_is_left_out_once_aloud_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    rubbish = wire("bad", 4, data=["no", "map"])
    async with following(rubbish, wire("a", 3)) as (seen, stream):
        assert seen.news() == [(None, "a@3")]
        stream.send(
            {"type": "MODIFIED", "object": wire("bad", 11, data=["no", "map"])},
            {"type": "ADDED", "object": wire("b", 12)},
        )
        await turns()
        assert seen.news() == [(None, "b@12")]
        assert seen.informer.skipped == 2
        assert caplog.text.count("ConfigMap n/bad is left out") == 1
        stream.send({"type": "MODIFIED", "object": wire("bad", 13)})
        await turns()
        assert seen.news() == [(None, "bad@13")]
        stream.send({"type": "DELETED", "object": wire("bad", 14, data=["no", "map"])})
        await turns()
        assert seen.news() == [("bad@13", None)]


async def test_a_handler_that_raises_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with following() as (seen, stream):
        later: list[str | None] = []

        def broken(old: ConfigMap | None, new: ConfigMap | None) -> None:
            raise ZeroDivisionError

        seen.informer.add_handler(broken)
        seen.informer.add_handler(lambda old, new: later.append(_told(new)))
        stream.send({"type": "ADDED", "object": wire("a", 11)}, {"type": "ADDED", "object": wire("b", 12)})
        await turns()
        assert later == ["a@11", "b@12"]
        assert "a handler of configmaps failed for n/a" in caplog.text


async def test_a_handler_added_late_hears_of_what_is_there() -> None:
    async with following(wire("a", 3)) as (seen, _):
        heard: list[Change] = []
        seen.informer.add_handler(lambda old, new: heard.append((_told(old), _told(new))))
        assert heard == [(None, "a@3")]


async def test_what_we_made_while_a_list_was_under_way_is_not_dropped_by_it() -> None:
    async with following() as (seen, stream):
        seen.informer.put(config_map("own", 35))
        seen.list_answer(30)
        seen.peer.answer_stream()
        stream.send({"type": "ERROR", "object": {"code": 410}})
        await turns()
        assert ObjectKey("n", "own") in seen.informer.cache


async def test_a_server_restored_from_a_backup_is_believed() -> None:
    async with following(wire("a", 9)) as (seen, stream):
        seen.news()
        seen.list_answer(5, wire("a", 2))
        seen.peer.answer_stream()
        stream.send({"type": "ERROR", "object": {"code": 410}})
        await turns()
        assert seen.news() == [("a@9", "a@2")]


async def test_stopping_it_lets_go_of_the_watch() -> None:
    async with following() as (_, stream):
        pass
    assert stream.closed


async def compare(seen: Observed, stream: Stream, revision: int, *items: dict[str, object]) -> Stream:
    """End the watch after its time; the server has these objects, as metadata."""
    seen.list_answer(revision, *items)
    following_stream = seen.peer.answer_stream()
    seen.clock.advance(timedelta(minutes=8))
    stream.end()
    await turns()
    return following_stream


async def test_a_comparison_asks_for_metadata_only_and_changes_nothing_where_all_is_well() -> None:
    async with following(wire("a", 3), wire("b", 4)) as (seen, stream):
        seen.news()
        await compare(seen, stream, 10, wire("a", 3), wire("b", 4))
        assert "PartialObjectMetadataList" in seen.peer.requests[2].headers["accept"]
        assert "resourceVersion=10" in seen.peer.targets[3]
        assert seen.news() == []


@pytest.mark.parametrize(
    ("there", "news"),
    [
        ((wire("a", 3), wire("b", 9)), [("b@4", "b@9")]),
        ((wire("a", 3), wire("b", 4), wire("c", 5)), [(None, "c@5")]),
        ((wire("a", 3),), [("b@4", None)]),
    ],
    ids=["a change", "a new one", "a deletion"],
)
async def test_what_no_event_has_told_of_is_found_by_comparison(
    there: tuple[dict[str, object], ...], news: list[Change], caplog: pytest.LogCaptureFixture
) -> None:
    async with following(wire("a", 3), wire("b", 4)) as (seen, stream):
        seen.news()
        seen.list_answer(10, *there)
        seen.list_answer(10, *there)
        seen.peer.answer_stream()
        seen.clock.advance(timedelta(minutes=8))
        stream.end()
        await turns()
        assert seen.news() == news
        assert "1 changes had not been delivered" in caplog.text


async def test_what_is_newer_than_the_last_event_has_not_been_missed() -> None:
    async with following(wire("a", 3)) as (seen, stream):
        seen.news()
        # One that was made, one that we have made since, and one changed: their events are to come.
        seen.informer.put(config_map("own", 14))
        await compare(seen, stream, 13, wire("a", 12), wire("new", 11))
        assert len(seen.peer.requests) == 4
        assert seen.news() == [(None, "own@14")]


async def test_what_cannot_be_read_is_not_missed_again_and_again() -> None:
    rubbish = wire("r", 5, data=[1])
    async with following(wire("a", 3), rubbish) as (seen, stream):
        await compare(seen, stream, 10, wire("a", 3), wire("r", 5))
        assert len(seen.peer.requests) == 4


@pytest.mark.parametrize("code", [404, 403])
async def test_a_kind_that_is_optional_may_be_missing_and_come_later(code: int) -> None:
    peer, clock = Peer(), TestClock()
    informer = Informer(peer.client(clock=clock), CONFIG_MAPS, clock, jitter=lambda: 1.0, is_optional=True)
    peer.answer(code, {"kind": "Status", "code": code, "message": "no"})
    peer.answer(200, {"metadata": {"resourceVersion": "10"}, "items": [wire("a", 5)]})
    task = asyncio.get_running_loop().create_task(informer.run())
    await turns()
    assert informer.synced.is_set()
    assert len(informer.cache) == 0
    clock.advance(timedelta(seconds=40))
    await turns()
    assert len(informer.cache) == 1
    task.cancel()
