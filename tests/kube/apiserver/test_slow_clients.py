"""Clients that dawdle, hoard or crowd, over TLS: each costs little, and not for long."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from certwright.kube.apiserver.http import https, protocol, response_writer
from certwright.kube.apiserver.http.response_writer import Unread
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.http_messages import HEARTBEAT, Handler, Request, Response
from kube.apiserver import greedy
from kube.apiserver.callers import CONFIG_MAPS, SECRETS, Api, StartApi, grant, rule
from kube.apiserver.over_tls import FOR_EVER, Served, head, is_closed, served
from support.waiting import until


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /livez HT", head("POST", SECRETS, content_length="10") + b"{"],
    ids=["nothing", "half a header", "half a body"],
)
async def test_who_does_not_send_on_is_disconnected(
    server: Served, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEADER_S", 0.1)
    monkeypatch.setattr(protocol, "BODY_S", 0.3)
    reader = await server.send(sent)
    assert await is_closed(reader)
    await until(lambda: not server.connections)


async def test_empty_lines_do_not_keep_a_connection_open(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await server.connect()
    writer.write(head("GET", "/livez"))
    await reader.readuntil(b"\r\n\r\nok")
    monkeypatch.setattr(protocol, "HEADER_S", 0.1)
    writer.write(b"\r\n")
    assert await is_closed(reader)


async def test_a_body_has_more_time_than_the_header(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = await server.connect()
    await until(lambda: len(server.connections) == 1)
    (connection,) = server.connections
    monkeypatch.setattr(protocol, "HEADER_S", 0.1)
    body = b'{"metadata":{"name":"slow"}}'
    fields = {"content_type": "application/json", "content_length": str(len(body))}
    writer.write(head("POST", SECRETS, **fields))
    # The header has come, and its 0.1 s are over.
    await until(lambda: connection._incoming is not None and not connection._in_body)
    writer.write(body)
    assert (await reader.readline()).startswith(b"HTTP/1.1 201 ")


async def test_a_handshake_that_does_not_come_is_not_waited_for(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "HANDSHAKE_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.face.port)
    server.writers.append(writer)
    assert await is_closed(reader)


async def test_a_watcher_that_never_reads_costs_little_and_is_dropped(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_writer, "WRITE_S", 1.0)
    await server.send(head("GET", f"{CONFIG_MAPS}?watch=true"))
    await until(lambda: server.api.server.open_watches == 1)
    (connection,) = server.connections
    most = 0
    for number in range(200):  # 20 MB
        made = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 100_000}}
        await server.api.ok("POST", CONFIG_MAPS, made)
        await asyncio.sleep(0)
        most = max(most, connection.transport.get_write_buffer_size())
    assert most < 2 << 20
    await until(lambda: server.api.server.open_watches == 0)
    await until(lambda: not server.connections)


async def test_a_watcher_that_reads_too_late_is_told_to_list_again(server: Served) -> None:
    assert isinstance(server.api.store, MemoryStore)
    server.api.store._fanout.max_retained_bytes = 2_000_000
    reader = await server.send(head("GET", f"{CONFIG_MAPS}?watch=true"))
    await until(lambda: server.api.server.open_watches == 1)
    for number in range(100):
        made = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 100_000}}
        await server.api.ok("POST", CONFIG_MAPS, made)
        await asyncio.sleep(0)
    read = b""
    async with asyncio.timeout(FOR_EVER):
        while not read.endswith(b"\r\n0\r\n\r\n"):
            read += await reader.read(65536)
    lines = read.splitlines()
    last = next(json.loads(line) for line in reversed(lines) if line.startswith(b"{"))
    assert (last["type"], last["object"]["code"]) == ("ERROR", 410)
    assert sum(line.startswith(b'{"type":"ADDED"') for line in lines) < 100
    assert server.api.server.open_watches == 0


async def test_a_list_that_is_not_read_gives_back_its_seats(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_writer, "WRITE_S", 0.5)
    for number in range(1200):
        made = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 4000}}
        await server.api.ok("POST", CONFIG_MAPS, made)
    await server.send(head("GET", CONFIG_MAPS))
    levels = server.api.server._fairness.levels
    await until(lambda: sum(level.in_use for level in levels) == 10)
    await until(lambda: sum(level.in_use for level in levels) == 0)
    await until(lambda: not server.connections)


async def test_bodies_on_their_way_are_bounded_together(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_BODIES", 1_000_000)
    fields = {"authorization": "", "content_type": "application/json", "content_length": "900000"}
    begun = [await server.connect() for _ in range(2)]
    for _, writer in begun:
        writer.write(head("POST", SECRETS, **fields) + b" " * 600_000)
    answers = [asyncio.create_task(reader.readline()) for reader, _ in begun]
    async with asyncio.timeout(FOR_EVER):
        done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result().split()[1] for task in done] == [b"429"]
    kept = next(index for index, task in enumerate(answers) if not task.done())
    begun[kept][1].write(b" " * 300_000)
    assert (await answers[kept]).split()[1] == b"401"


async def test_compressed_bodies_are_not_inflated(server: Served) -> None:
    reader, writer = await server.connect()
    bomb = gzip.compress(b" " * (64 << 20))
    fields = {"content_type": "application/json", "content_encoding": "gzip"}
    writer.write(head("POST", SECRETS, content_length=str(len(bomb)), **fields) + bomb)
    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")


class Counting:
    """Around a handler: how many requests of `greedy` have been answered with a list."""

    def __init__(self) -> None:
        self.lists = 0

    def around(self, handler: Handler) -> Handler:
        """The handler, counted."""

        async def counted(request: Request) -> Response:
            response = await handler(request)
            self.lists += response.status == 200 and request.headers.get("authorization") == "Bearer greedy"
            return response

        return counted


async def test_two_hundred_greedy_connections_do_not_starve_others(
    start_api: StartApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(https, "HANDSHAKE_S", FOR_EVER)
    monkeypatch.setattr(protocol, "HEADER_S", FOR_EVER)
    counting = Counting()
    async with served(start_api, tmp_path, counting.around) as it:
        for user in ("greedy", "polite"):
            await grant(it.api, rule("list", "configmaps"), user=user)
        for number in range(400):
            made = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 100}}
            await it.api.ok("POST", CONFIG_MAPS, made)
        program = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                greedy.__file__,
                it.url + CONFIG_MAPS,
                str(it.identity.ca_path),
                "greedy",
                "200",
            ),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await until(lambda: len(it.connections) == 200 and counting.lists > 200)
            passed = [await _passed_by(it, counting, "polite") for _ in range(10)]
        finally:
            program.kill()
            await program.wait()
    # Without fairness each of them would be passed by every one of the two hundred.
    assert max(passed) < 200, passed


async def _passed_by(it: Served, counting: Counting, user: str) -> int:
    """How many greedy lists are answered while `user` asks for one."""
    connector = aiohttp.TCPConnector(ssl=it.tls())
    headers = {"authorization": f"Bearer {user}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        async with session.get(it.url + "/livez") as ready:
            assert ready.status == 200
        before = counting.lists
        async with session.get(f"{it.url}{CONFIG_MAPS}") as answer:
            assert answer.status == 200
            return counting.lists - before


WATCH = f"{SECRETS}?watch=true&resourceVersion=1"


async def test_a_watch_has_the_heartbeats_that_it_requests(server: Served) -> None:
    reader = await server.send(head("GET", WATCH, **{HEARTBEAT: "1"}))
    assert f"{HEARTBEAT}: 1".encode() in (await reader.readuntil(b"\r\n\r\n")).lower()
    assert await reader.readexactly(12) == 2 * b"1\r\n\n\r\n"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {HEARTBEAT: "0"},
        {HEARTBEAT: "61"},
        {HEARTBEAT: "-1"},
        {HEARTBEAT: "often"},
        {HEARTBEAT: "2", "accept": "application/vnd.kubernetes.protobuf"},
    ],
    ids=["none", "zero", "rare", "negative", "no number", "not of lines"],
)
async def test_other_watches_are_promised_none(server: Served, fields: dict[str, str]) -> None:
    reader = await server.send(head("GET", WATCH, **fields))
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in answer
    assert HEARTBEAT.encode() not in answer.lower()


def test_the_connection_that_has_waited_longest_is_closed_first() -> None:
    unread, closed = Unread(limit=100), list[str]()
    for name in ("a", "b", "c"):
        unread.add(name, 30, partial(closed.append, name))
    unread.remove("a")
    unread.add("a", 30, partial(closed.append, "a"))
    unread.add("d", 30, partial(closed.append, "d"))
    assert closed == ["b"]
    assert (unread.size, unread.dropped) == (90, 1)


def test_a_connection_that_reads_again_holds_nothing() -> None:
    unread = Unread(limit=100)
    unread.add("a", 30, lambda: None)
    unread.remove("a")
    unread.remove("a")
    assert unread.size == 0


def test_one_answer_may_exceed_the_limit_alone() -> None:
    unread, closed = Unread(limit=100), list[str]()
    unread.add("a", 300, partial(closed.append, "a"))
    assert (unread.size, closed) == (300, [])
    unread.add("b", 1, partial(closed.append, "b"))
    assert (unread.size, closed) == (1, ["a"])


CLIENTS = 12
OBJECTS = 120
SIZE = 100_000


async def fill(api: Api) -> None:
    """12 MB of ConfigMaps."""
    for number in range(OBJECTS):
        made = {"metadata": {"name": f"c{number:03}"}, "data": {"x": "y" * SIZE}}
        await api.ok("POST", CONFIG_MAPS, made)


def buffered(it: Served) -> int:
    """The bytes that wait in all connections."""
    return sum(connection.transport.get_write_buffer_size() for connection in it.connections)


@pytest.mark.parametrize(
    "query",
    [
        "?watch=1",
        "?watch=1&resourceVersion=0",
        "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "",
    ],
    ids=["watch", "watch from 0", "WatchList", "list"],
)
async def test_what_is_not_read_is_not_made(server: Served, query: str) -> None:
    await fill(server.api)
    for _ in range(CLIENTS):
        await server.send(head("GET", CONFIG_MAPS + query))
    await until(lambda: len(server.unread.waiting) == CLIENTS)
    assert buffered(server) < CLIENTS * 600_000
    assert server.unread.size < CLIENTS * 1_300_000
    for writer in server.writers:
        writer.transport.abort()
    await until(lambda: server.unread.size == 0)


async def test_a_large_answer_that_is_not_read_is_encrypted_piece_by_piece(server: Served) -> None:
    for number in range(8):
        made = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 900_000}}
        await server.api.ok("POST", CONFIG_MAPS, made)
    _, writer = await server.connect()
    for number in range(8):
        writer.write(head("GET", f"{CONFIG_MAPS}/c{number}"))
    await until(lambda: len(server.unread.waiting) == 1)
    assert buffered(server) < 600_000


async def read_events(reader: asyncio.StreamReader, until_name: str) -> list[dict[str, Any]]:
    """The events of a watch up to that of an object."""
    events, buffer = list[dict[str, Any]](), b""
    async with asyncio.timeout(FOR_EVER):
        await reader.readuntil(b"\r\n\r\n")
        while not events or events[-1]["object"]["metadata"].get("name") != until_name:
            size = int(await reader.readuntil(b"\r\n"), 16)
            *lines, buffer = (buffer + (await reader.readexactly(size + 2))[:-2]).split(b"\n")
            events += map(json.loads, lines)
    return events


async def test_a_watcher_that_reads_late_gets_the_initial_state_then_every_change_in_order(
    server: Served,
) -> None:
    await fill(server.api)
    revision = server.api.store.revision
    reader, writer = await server.connect()
    query = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    writer.write(head("GET", CONFIG_MAPS + query))
    await until(lambda: len(server.unread.waiting) == 1)
    # Of the initial state most has not been read from the store yet.
    await server.api.ok("DELETE", f"{CONFIG_MAPS}/c{OBJECTS - 1:03}")
    changed = {"metadata": {"name": f"c{OBJECTS - 2:03}"}, "data": {"x": "new"}}
    await server.api.ok("PUT", f"{CONFIG_MAPS}/c{OBJECTS - 2:03}", changed)
    await server.api.config_map("a-first")
    await server.api.config_map("last")
    events = await read_events(reader, "last")
    initial, bookmark, changes = events[:OBJECTS], events[OBJECTS], events[OBJECTS + 1 :]
    assert [event["type"] for event in initial] == ["ADDED"] * OBJECTS
    assert [event["object"]["metadata"]["name"] for event in initial] == [f"c{n:03}" for n in range(OBJECTS)]
    assert all(event["object"]["data"]["x"] == "y" * SIZE for event in initial)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"] == {
        "resourceVersion": str(revision),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in changes] == [
        ("DELETED", f"c{OBJECTS - 1:03}"),
        ("MODIFIED", f"c{OBJECTS - 2:03}"),
        ("ADDED", "a-first"),
        ("ADDED", "last"),
    ]


async def test_above_the_bound_clients_that_read_nothing_are_closed_first_and_one_that_reads_stays(
    start_api: StartApi, tmp_path: Path
) -> None:
    async with served(start_api, tmp_path, max_unread=2_000_000) as it:
        await fill(it.api)
        for _ in range(CLIENTS):
            await it.send(head("GET", f"{CONFIG_MAPS}?watch=1"))
        await until(lambda: it.unread.dropped + len(it.unread.waiting) == CLIENTS)
        assert it.unread.dropped > 0
        assert it.unread.size <= 2_000_000
        reader = await it.send(head("GET", f"{CONFIG_MAPS}?watch=1"))
        events = await read_events(reader, f"c{OBJECTS - 1:03}")
        assert len(events) == OBJECTS
        assert it.unread.size <= 2_000_000
