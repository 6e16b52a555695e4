"""Clients that do not read what they asked for, and those that read it late: what that costs the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kube.apiserver.callers import CONFIG_MAPS, Api, StartApi
from kube.apiserver.over_tls import FOR_EVER, Served, head, served
from support.waiting import until

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
async def test_what_is_not_read_is_not_made(start_api: StartApi, tmp_path: Path, query: str) -> None:
    async with served(start_api, tmp_path) as it:
        await fill(it.api)
        for _ in range(CLIENTS):
            _, writer = await it.connect()
            writer.write(head("GET", CONFIG_MAPS + query))
        await until(lambda: len(it.unread.waiting) == CLIENTS)
        assert buffered(it) < CLIENTS * 600_000
        assert it.unread.size < CLIENTS * 1_300_000
        for writer in it.writers:
            writer.transport.abort()
        await until(lambda: it.unread.size == 0)


async def test_a_large_answer_that_is_not_read_is_encrypted_piece_by_piece(
    start_api: StartApi, tmp_path: Path
) -> None:
    async with served(start_api, tmp_path) as it:
        for number in range(8):
            made = {"metadata": {"name": f"c{number}"}, "data": {"x": "y" * 900_000}}
            await it.api.ok("POST", CONFIG_MAPS, made)
        _, writer = await it.connect()
        for number in range(8):
            writer.write(head("GET", f"{CONFIG_MAPS}/c{number}"))
        await until(lambda: len(it.unread.waiting) == 1)
        assert buffered(it) < 600_000


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
    start_api: StartApi, tmp_path: Path
) -> None:
    async with served(start_api, tmp_path) as it:
        await fill(it.api)
        revision = it.api.store.revision
        reader, writer = await it.connect()
        query = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        writer.write(head("GET", CONFIG_MAPS + query))
        await until(lambda: len(it.unread.waiting) == 1)
        # Of the initial state most has not been read from the store yet.
        await it.api.ok("DELETE", f"{CONFIG_MAPS}/c{OBJECTS - 1:03}")
        changed = {"metadata": {"name": f"c{OBJECTS - 2:03}"}, "data": {"x": "new"}}
        await it.api.ok("PUT", f"{CONFIG_MAPS}/c{OBJECTS - 2:03}", changed)
        await it.api.ok("POST", CONFIG_MAPS, {"metadata": {"name": "a-first"}})
        await it.api.ok("POST", CONFIG_MAPS, {"metadata": {"name": "last"}})
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
            _, writer = await it.connect()
            writer.write(head("GET", f"{CONFIG_MAPS}?watch=1"))
        await until(lambda: it.unread.dropped + len(it.unread.waiting) == CLIENTS)
        assert it.unread.dropped > 0
        assert it.unread.size <= 2_000_000
        reader, writer = await it.connect()
        writer.write(head("GET", f"{CONFIG_MAPS}?watch=1"))
        events = await read_events(reader, f"c{OBJECTS - 1:03}")
        assert len(events) == OBJECTS
        assert it.unread.size <= 2_000_000
