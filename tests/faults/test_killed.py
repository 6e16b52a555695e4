"""A server, or the etcd below it, that is killed again and again while several write and watch: every write
that was acknowledged is there, none is there twice, revisions only grow, and watchers go on without gaps.

CERTWRIGHT_SOAK=n kills n times, after other numbers of writes in every run.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from faults.server import CONFIG_MAPS, GONE, Answer, Server, config_map, running
from support.etcd import Etcd, running_etcd

_SOAK = int(os.environ.get("CERTWRIGHT_SOAK") or 0)
_MOST_WRITES = 200  # acknowledged between two deaths
_ENOUGH_S, _WITHIN_S = 2.0, 180.0
_WRITERS, _COUNTERS, _WATCHERS = 5, 2, 3


@dataclass(slots=True)
class Load:
    """Writers who know what they were told."""

    server: Server
    uids: dict[str, str] = field(default_factory=dict)  # of what was acknowledged
    deleted: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    counted: dict[str, int] = field(default_factory=dict)
    unsure_counts: dict[str, int] = field(default_factory=dict)
    last: int = 0  # revision acknowledged
    floor: int = 0  # revision acknowledged before the last death
    acknowledged: int = 0
    stopped: bool = False

    async def ask(self, method: str, path: str, body: Any = None) -> Answer | None:
        """The answer; None where nobody knows whether the request was carried out."""
        await self.server.up.wait()
        deaths = self.server.deaths
        try:
            answer = await self.server.ask(method, path, body)
        except GONE:
            if deaths == self.server.deaths and self.server.up.is_set():
                # The kernel was quicker than we: the server is about to be found dead.
                await asyncio.sleep(0.01)
            return None
        assert answer.status < 500 or answer.status == 503, answer.text
        if answer.status == 503:
            return None
        if method in ("POST", "PUT") and answer.status < 300 and deaths == self.server.deaths:
            self._note(int(answer.json["metadata"]["resourceVersion"]))
        return answer

    def _note(self, revision: int) -> None:
        assert revision > self.floor, "a revision was given out again"
        self.last = max(self.last, revision)
        self.acknowledged += 1

    async def get_on(self, writes: int) -> None:
        """Return when so many more have been acknowledged, or on a slow disk one. Raises `TimeoutError`."""
        before, enough = self.acknowledged, time.monotonic() + _ENOUGH_S
        async with asyncio.timeout(_WITHIN_S):
            # A bound is set around it, and other tasks do the counting.
            while self.acknowledged < before + (writes if time.monotonic() < enough else min(writes, 1)):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def died(self) -> None:
        """From now on all revisions are higher than any before."""
        self.floor = self.last

    async def write(self, writer: int) -> None:
        """Create one object after the other, each once; delete every third."""
        for number in itertools.count():
            if self.stopped:
                return
            name = f"w{writer}-{number:06}"
            answer = await self.ask("POST", CONFIG_MAPS, config_map(name, text="x" * 500))
            if answer is None:
                self.unsure.add(name)
                continue
            assert answer.status == 201, (name, answer.text)
            self.uids[name] = answer.json["metadata"]["uid"]
            if number % 3 == 2:
                gone = await self.ask("DELETE", f"{CONFIG_MAPS}/{name}")
                assert gone is None or gone.status == 200, gone
                (self.unsure if gone is None else self.deleted).add(name)

    async def count(self, name: str) -> None:
        """Count up: read, add one, write on condition that nobody else has."""
        self.counted[name] = self.unsure_counts[name] = 0
        path = f"{CONFIG_MAPS}/{name}"
        while not self.stopped:
            response = await self.ask("GET", path)
            if response is None:
                continue
            if response.status == 404:
                await self.ask("POST", CONFIG_MAPS, config_map(name, n="0"))
                continue
            revision, value = response.json["metadata"]["resourceVersion"], int(response.json["data"]["n"])
            low = self.counted[name]
            assert low <= value <= low + self.unsure_counts[name], "a write is lost, or was made twice"
            update = config_map(name, revision=revision, n=str(value + 1))
            answer = await self.ask("PUT", path, update)
            if answer is None:
                self.unsure_counts[name] += 1
            else:
                assert answer.status == 200, answer.text
                # What was unsure is known now: it is in the value that was read.
                self.counted[name], self.unsure_counts[name] = value + 1, 0


@dataclass(slots=True)
class Watcher:
    """Lists once, then lives by events; lists again only where the server says that events are gone."""

    server: Server
    known: dict[str, tuple[int, str]] = field(default_factory=dict)  # revision, counter
    position: int = 0
    events: int = 0
    lists: int = 0
    stopped: bool = False

    async def run(self) -> None:
        """Follow the collection until stopped."""
        while not self.stopped:
            await self.server.up.wait()
            try:
                if not self.position:
                    await self._list()
                if self.position:
                    await self._watch()
            except GONE:
                await asyncio.sleep(0.01)

    async def _list(self) -> None:
        answer = await self.server.ask("GET", CONFIG_MAPS)
        if answer.status != 200:
            await self._wait(answer.status)
            return
        listed, before = answer.json, self.known
        self.known = {item["metadata"]["name"]: _seen(item) for item in listed["items"]}
        revision = int(listed["metadata"]["resourceVersion"])
        newest = max((seen[0] for seen in before.values()), default=0)
        assert revision >= newest, "the list is older than what was watched"
        for name, (seen, _) in before.items():
            assert name not in self.known or self.known[name][0] >= seen, "an object went back"
        self.position = revision
        self.lists += 1

    async def _watch(self) -> None:
        query = f"?watch=1&resourceVersion={self.position}&timeoutSeconds=30"
        limit = aiohttp.ClientTimeout(total=None, sock_read=20)
        async with self.server.session.get(CONFIG_MAPS + query, timeout=limit) as answer:
            if answer.status == 410:
                self.position = 0
                return
            if answer.status != 200:
                await self._wait(answer.status)
                return
            async for line in answer.content:
                if not line.endswith(b"\n"):
                    return
                if not self._take(json.loads(line)):
                    self.position = 0
                    return

    async def _wait(self, status: int) -> None:
        assert status == 503, status
        await asyncio.sleep(0.05)

    def _take(self, event: dict[str, Any]) -> bool:
        """Note an event; False where it says that others are gone."""
        if event["type"] == "ERROR":
            assert event["object"]["code"] in (410, 503), event
            return False
        name, seen = event["object"]["metadata"]["name"], _seen(event["object"])
        assert seen[0] > self.position, "an event came twice, or out of order"
        before = self.known.get(name)
        if event["type"] == "ADDED":
            assert before is None, f"{name} was made twice"
        else:
            assert before is not None, f"{name} was never told of"
        if event["type"] == "MODIFIED" and before is not None:
            assert int(seen[1]) == int(before[1]) + 1, "a change is missing"
        if event["type"] == "DELETED":
            del self.known[name]
        else:
            self.known[name] = seen
        self.position = seen[0]
        self.events += 1
        return True


def _seen(item: dict[str, Any]) -> tuple[int, str]:
    return int(item["metadata"]["resourceVersion"]), item["data"].get("n", "")


Blow = Callable[["Server", Load], Awaitable[None]]
"""Kills something, and starts it again."""


async def kill_server(server: Server, load: Load) -> None:
    """What it has acknowledged is in the store."""
    server.kill()
    load.died()
    await server.start()


def killing(etcd: Etcd, *, server_too: bool) -> Blow:
    """What it has acknowledged is on its disk; the server waits for it, or dies while it is away."""

    async def kill(server: Server, load: Load) -> None:
        etcd.kill()
        if server_too:
            server.kill()
            load.died()
        await asyncio.to_thread(etcd.start)
        if server_too:
            await server.start()

    return kill


async def bear(server: Server, deaths: int, *others: Blow) -> None:
    """Kill the server, and what else there is, in turns, after a while under load; compare in the end."""
    seed = random.randrange(10**6) if _SOAK else deaths
    print(f"seed {seed}")
    dice = random.Random(seed)
    load = Load(server)
    watchers = [Watcher(server) for _ in range(_WATCHERS)]
    works = [load.write(number) for number in range(_WRITERS)]
    works += [load.count(f"counter{number}") for number in range(_COUNTERS)]
    writing = [asyncio.create_task(work) for work in works]
    watching = [asyncio.create_task(watcher.run()) for watcher in watchers]
    for blow in itertools.islice(itertools.cycle((kill_server, *others)), deaths):
        pause = asyncio.create_task(load.get_on(dice.randrange(_MOST_WRITES)))
        done, _ = await asyncio.wait([pause, *writing, *watching], return_when=asyncio.FIRST_COMPLETED)
        for early in done:
            early.result()
        await blow(server, load)
    load.stopped = True
    await asyncio.gather(*writing)
    await compare(load, watchers)
    for task in watching:
        task.cancel()
    results = await asyncio.gather(*watching, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results), results
    event_lists = [watcher.events for watcher in watchers]
    lists = [watcher.lists for watcher in watchers]
    print(f"{len(load.uids)} acknowledged, {len(load.unsure)} unsure; events {event_lists}, lists {lists}")


async def compare(load: Load, watchers: list[Watcher]) -> None:
    """What the writers were told, what is there, and what the watchers know."""
    listed = (await load.server.ask("GET", CONFIG_MAPS)).json
    there = {item["metadata"]["name"]: item for item in listed["items"]}
    assert len(there) == len(listed["items"])
    for name, uid in load.uids.items():
        if name in load.deleted:
            assert name not in there, f"{name} came back"
        elif name not in load.unsure:
            assert there[name]["metadata"]["uid"] == uid, f"{name} is another one"
    ours = {name for name in there if name.startswith("w")}
    assert ours <= load.uids.keys() | load.unsure
    for name, low in load.counted.items():
        assert low <= int(there[name]["data"]["n"]) <= low + load.unsure_counts[name]
    expected = {name: _seen(item) for name, item in there.items()}
    async with asyncio.timeout(_WITHIN_S):
        for watcher in watchers:
            while watcher.known != expected:  # noqa: ASYNC110 - a bound is set around it
                await asyncio.sleep(0.02)


@pytest.mark.timeout(900 + 15 * _SOAK)
async def test_a_server_over_sqlite_loses_and_doubles_nothing_when_killed(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        await bear(server, _SOAK or 6)


@pytest.mark.timeout(900 + 15 * _SOAK)
async def test_a_server_over_etcd_loses_and_doubles_nothing_when_either_is_killed(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        alone, both = killing(etcd, server_too=False), killing(etcd, server_too=True)
        async with running(tmp_path, "--store", etcd.url) as server:
            await bear(server, _SOAK or 3, alone, both)
