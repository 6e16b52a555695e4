"""etcd is killed, stopped for a while and compacted while two servers write: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from certwright.kube.store.contract import Changed, Compacted, Event, Exists, Key, Store, Unavailable, Watch
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import EtcdStore
from conformance.store_words import saying
from kube.store.opening import opened
from support.etcd import Etcd, running_cluster, running_etcd

BUCKET = "things"
COUNTER = Key(BUCKET, "counter", "n")
Fault = Callable[[Etcd, list[EtcdStore]], Awaitable[None]]


@dataclass(slots=True)
class Load:
    """Writers of unique rows and of a counter. What was acknowledged must be there, once; of what failed
    nobody knows."""

    acknowledged: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    counted: int = 0
    maybe_counted: int = 0
    doubled: list[str] = field(default_factory=list)
    progress: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def more(self, count: int) -> None:
        """Return when so many rows more were acknowledged."""
        target = len(self.acknowledged) + count
        while len(self.acknowledged) < target:
            self.progress.clear()
            await self.progress.wait()

    async def create(self, store: Store, writer: str) -> None:
        """Create row after row, each once."""
        for number in itertools.count():
            if self.stopped.is_set():
                return
            name = f"{writer}-{number:05}"
            try:
                await store.put(Key(BUCKET, "rows", name), saying(name), expect=0)
            except Exists:
                self.doubled.append(name)
            except Unavailable:
                self.unknown.add(name)
            else:
                self.acknowledged.add(name)
                self.progress.set()

    async def count(self, store: Store) -> None:
        """Count up, as a read-modify-write that is done again on conflict."""
        while not self.stopped.is_set():
            try:
                row = await store.latest(COUNTER)
                assert row is not None
                await store.put(COUNTER, saying(str(int(row.body) + 1)), expect=row.revision)
            except Changed:
                continue
            except Unavailable:
                self.maybe_counted += 1
            else:
                self.counted += 1

    async def churn(self, store: Store, writer: str) -> None:
        """Create and delete, over and over: a write that is done twice would be refused."""
        key = Key(BUCKET, "churn", writer)
        while not self.stopped.is_set():
            try:
                row = await store.put(key, saying("here"))
                await store.delete(key, saying("gone"), expect=row.revision)
            except Unavailable:
                self.unknown.add(writer)


async def hear(watch: Watch, events: list[Event]) -> None:
    """Take whatever the watch tells."""
    async for batch in watch:
        events += batch


@asynccontextmanager
async def servers(*orders: Sequence[str]) -> AsyncIterator[list[EtcdStore]]:
    """The stores of servers that ask these members, in this order."""
    async with AsyncExitStack() as stack:
        accesses = [Access(tuple(members), patience_s=60.0) for members in orders]
        yield [await stack.enter_async_context(opened(access)) for access in accesses]


async def kill(etcd: Etcd, _stores: list[EtcdStore]) -> None:
    """A loss of power, and a start."""
    etcd.kill()
    await asyncio.to_thread(etcd.start)


async def pause(etcd: Etcd, _stores: list[EtcdStore]) -> None:
    """It stands still for longer than an attempt waits."""
    etcd.pause()
    await asyncio.sleep(6)
    etcd.resume()


async def compact(_etcd: Etcd, stores: list[EtcdStore]) -> None:
    """All history is dropped that every server has heard."""
    for _ in range(20):
        with suppress(Compacted):  # nothing was written since the last time
            await stores[0].compact(min(store.revision for store in stores))
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("fault", [kill, pause, compact])
async def test_nothing_is_lost_or_doubled(tmp_path: Path, fault: Fault) -> None:
    with running_etcd(tmp_path) as etcd:
        async with servers([etcd.member], [etcd.member]) as stores:
            await bear(stores, partial(fault, etcd, stores))


async def test_nothing_is_lost_or_doubled_when_members_fail(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as etcds:
        members = [etcd.member for etcd in etcds]
        failing = iter(etcds)

        async def lose_a_member() -> None:
            etcd = next(failing)
            etcd.kill()
            await asyncio.sleep(3)
            await asyncio.to_thread(etcd.start)

        # Each begins with another member; that of the first is gone for a while, then that of the second.
        async with servers(members, members[1:] + members[:1]) as stores:
            await bear(stores, lose_a_member)


async def test_a_member_that_lags_serves_nothing_old(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as etcds:
        members = [etcd.member for etcd in etcds]
        async with servers(members[:1], members[1:]) as (at_lagging, elsewhere):
            await elsewhere.put(COUNTER, saying("0"))
            assert await at_lagging.get(COUNTER) is not None
            etcds[0].pause()
            for number in range(1, 101):
                last = await elsewhere.put(COUNTER, saying(str(number)))
            etcds[0].resume()
            assert await at_lagging.get(COUNTER) == last
            assert (await at_lagging.list(BUCKET)).rows == [last]
            assert await at_lagging.up_to(last.revision) >= last.revision


async def bear(stores: list[EtcdStore], fault: Callable[[], Awaitable[None]]) -> None:
    """Write through both stores, with the fault in between, twice."""
    await stores[0].put(COUNTER, saying("0"))
    start = await stores[1].up_to(stores[0].revision)
    heard: list[list[Event]] = [[], []]
    watching = [
        asyncio.create_task(hear(store.watch(BUCKET, after=start), events))
        for store, events in zip(stores, heard, strict=True)
    ]
    load = Load()
    works = [
        *(load.create(store, f"w{number}") for number, store in enumerate(stores * 3)),
        *(load.count(store) for store in stores),
        *(load.churn(store, f"c{number}") for number, store in enumerate(stores)),
    ]
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)
        for _ in range(2):
            await load.more(50)
            await fault()
        await load.more(50)
        load.stopped.set()
    await check(stores, load, heard, watching)


async def check(
    stores: list[EtcdStore], load: Load, heard: list[list[Event]], watching: list[asyncio.Task[None]]
) -> None:
    """Compare what the writers were told with what is there, and with what the watchers were told."""
    there = [{row.key.name: row for row in (await store.list(BUCKET, "rows")).rows} for store in stores]
    counter = await stores[0].get(COUNTER)
    last = max(store.revision for store in stores)
    for store in stores:
        await store.up_to(last)
        await store.close()
    await asyncio.gather(*watching)
    assert not load.doubled
    assert there[0] == there[1]
    assert load.acknowledged <= set(there[0]) <= load.acknowledged | load.unknown
    assert counter is not None
    assert load.counted <= int(counter.body) <= load.counted + load.maybe_counted
    assert heard[0] == heard[1]
    revisions = [event.revision for event in heard[0]]
    assert revisions == sorted(set(revisions))
    created = Counter(event.row.key.name for event in heard[0] if event.row.key.namespace == "rows")
    assert created == Counter(there[0].keys())
    state: dict[Key, Event] = {}
    for event in heard[0]:
        before = state.get(event.row.key)
        known = None if before is None or before.deleted else before.row
        assert event.row.key == COUNTER or event.previous == known
        state[event.row.key] = event
