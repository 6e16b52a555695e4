"""Bodies on another etcd: what is written, read, watched and swept there."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from certwright.kube.store.contract import (
    Changed,
    Compacted,
    DamagedRow,
    Event,
    Exists,
    Full,
    Key,
    Row,
    StoreError,
    TooLarge,
    Unavailable,
)
from certwright.kube.store.etcd.messages import RANGE, TXN, Method, RangeRequest
from certwright.kube.store.etcd.overrides import Reference
from certwright.kube.store.etcd.store import EtcdStore
from conformance.store_words import BUCKET, A, B, all_pages, events_of, fill, holding, said, saying
from kube.store import overriding_child
from kube.store.overriding import Pair, newest, sweep, turn
from kube.store.test_etcd_faults import Fault, bear, kill, pause
from kube.store.test_etcd_quota import disarm
from support.etcd import MAX_REQUEST_BYTES, Etcd, running_etcd

_numbers = itertools.count()
PLAIN = Key("plain", "ns", "a")


@pytest.fixture
def pair(etcd: Etcd, other_etcd: Etcd) -> Pair:
    """A new store on two etcds."""
    return Pair(etcd, other_etcd, f"/overridden/{next(_numbers)}")


class TestBodies:
    async def test_only_the_bodies_of_overridden_buckets_are_on_the_other_etcd(self, pair: Pair) -> None:
        async with pair.opened() as store:
            await store.put(A, saying("there"))
            await store.put(PLAIN, saying("here"))
            assert [key.rpartition(b"\0")[0][:4] for key in await pair.bodies(pair.main)] == [b"plai"]
            (body,) = await pair.bodies()
            assert body.startswith(b"things\0ns\0a\0")
            assert said((await store.list(BUCKET)).rows) == ["a=there"]

    async def test_a_refusal_has_the_row_with_its_body(self, pair: Pair) -> None:
        async with pair.opened() as one, pair.opened() as other:
            row = await one.put(A, saying("x"))
            with pytest.raises(Exists) as exists:
                await other.put(A, saying("y"), expect=0)
            with pytest.raises(Changed) as changed:
                await other.put(A, saying("y"), expect=row.revision - 1)
            assert exists.value.current == changed.value.current == row

    async def test_another_server_reads_and_watches_them(self, pair: Pair) -> None:
        async with pair.opened() as one, pair.opened() as other:
            start = other.revision
            for number in range(10):
                await one.put(A, saying(str(number)))
                await one.put(PLAIN, saying(str(number)))
            await one.delete(A)
            await other.up_to(one.revision)
            events = await events_of(other, after=start)
            assert [event.row.body.decode() for event in events] == [*map(str, range(10)), "9"]
            assert [event.previous and event.previous.body.decode() for event in events] == [
                None,
                *map(str, range(10)),
            ]

    async def test_what_events_replace_is_read_by_a_server_that_never_had_it(self, pair: Pair) -> None:
        async with pair.opened() as one:
            rows = await fill(one, 120)
            async with pair.opened() as other:
                start = other.revision
                await asyncio.gather(*(one.put(row.key, saying("new")) for row in rows[:100]))
                await asyncio.gather(*(one.delete(row.key) for row in rows[100:]))
                await other.up_to(one.revision)
                events = await events_of(other, after=start)
                assert {event.previous.body for event in events if event.previous} == {b"old"}
                assert len([event for event in events if event.previous]) == 120

    async def test_a_list_is_continued_at_an_old_revision_until_that_is_compacted(self, pair: Pair) -> None:
        async with pair.opened() as store, pair.opened() as other:
            await fill(store, 10)
            await sweep(store)
            first = await store.list(BUCKET, limit=3)
            for number in range(5):
                for row in (await store.list(BUCKET)).rows:
                    await store.put(row.key, saying(f"new {number}"))
            await store.delete(first.rows[-1].key)
            for reader in (store, other):
                rest = await reader.list(BUCKET, after=first.last, revision=first.revision)
                assert {row.body for row in rest.rows} == {b"old"}
                assert len(rest.rows) == 7
                chosen = await reader.list(
                    BUCKET, revision=first.revision, keep=lambda row: row.key.name < "003"
                )
                assert [row.body for row in chosen.rows] == 3 * [b"old"]
            await sweep(store)
            with pytest.raises(Compacted):
                await other.list(BUCKET, after=first.last, revision=first.revision)

    async def test_pages_end_where_their_bytes_do_and_count_the_rest(self, pair: Pair) -> None:
        async with pair.opened() as store:
            for number in range(10):
                await store.put(Key(BUCKET, "ns", f"{number:03}"), holding(1_000 * b"x"))
            page = await store.list(BUCKET, max_bytes=5_000, counted=True)
            assert (len(page.rows), page.more, page.remaining) == (3, True, 7)
            page = await store.list(BUCKET, max_bytes=5_000, limit=2, counted=True)
            assert (len(page.rows), page.more, page.remaining) == (2, True, 8)
            names = [row.key.name for page in await all_pages(store, limit=4) for row in page.rows]
            assert names == [f"{number:03}" for number in range(10)]

    async def test_a_row_that_is_too_large_is_refused(self, pair: Pair) -> None:
        async with pair.opened() as store:
            with pytest.raises(TooLarge):
                await store.put(A, holding(os.urandom(MAX_REQUEST_BYTES + 1)))
            assert await store.get(A) is None

    async def test_a_body_that_is_missing_damages_its_row_only(self, pair: Pair) -> None:
        async with pair.opened() as store, pair.opened() as fresh:
            await fill(store, 3)
            bodies = await pair.bodies()
            await pair.wipe(pair.other, pair.layout.body + bodies[1])
            async with pair.opened() as later:
                with pytest.raises(DamagedRow, match=f"contents are missing on etcd at {pair.other.member}"):
                    await later.get(Key(BUCKET, "ns", "001"))
                page = await later.list(BUCKET)
                assert [row.key.name for row in page.rows] == ["000", "002"]
                assert [key.name for key in page.damaged] == ["001"]
                assert [row.key.name for row in later.damage] == ["001"]
                await later.discard(Key(BUCKET, "ns", "001"), saying("gone"))
                assert len((await later.list(BUCKET)).rows) == 2
            assert len((await fresh.list(BUCKET)).rows) == 2

    @pytest.mark.parametrize("lost", [1, 2])
    async def test_a_write_whose_answer_is_lost_happens_once(
        self, pair: Pair, lose_an_answer: Callable[[], None], lost: int
    ) -> None:
        async with pair.opened() as store, pair.opened() as other:
            start = other.revision
            for _ in range(lost):
                lose_an_answer()
            row = await store.put(A, saying("x"), expect=0)
            for _ in range(lost):
                lose_an_answer()
            await store.delete(A, expect=row.revision)
            await other.up_to(store.revision)
            assert len(await events_of(other, after=start)) == 2


class TestSweep:
    async def test_exactly_the_bodies_that_are_referred_to_are_left(self, pair: Pair) -> None:
        async with pair.opened() as store:
            await fill(store, 230)
            rows = (await store.list(BUCKET)).rows
            await asyncio.gather(*(store.put(row.key, saying("new")) for row in rows[:150]))
            await asyncio.gather(*(store.delete(row.key) for row in rows[200:]))
            assert len(await pair.bodies()) == 380
            assert await sweep(store) == 180
            assert len(await pair.bodies()) == 200
            assert await pair.queue() == []
            listed = (await store.list(BUCKET)).rows
            assert [row.body for row in listed] == 150 * [b"new"] + 50 * [b"old"]
            assert await sweep(store) == 0

    async def test_nothing_is_swept_before_the_main_etcd_is_compacted(self, pair: Pair) -> None:
        async with pair.opened() as store:
            await sweep(store)
            for number in range(5):
                await store.put(A, saying(str(number)))
            assert await turn(store) == 0  # begins an epoch
            page = await store.list(BUCKET)
            await store.put(A, saying("5"))
            for _ in range(3):
                assert await store._sweep.look() == 0
            assert (await store.list(BUCKET, revision=page.revision)).rows == page.rows
            # The newest revision that may still be read has the body of before it.
            await store.compact(page.revision)
            assert await store._sweep.look() == 4
            assert (await store.list(BUCKET, revision=page.revision)).rows == page.rows
            assert len(await pair.bodies()) == 2

    async def test_a_name_that_is_written_all_the_time_is_swept(self, pair: Pair) -> None:
        async with pair.opened() as store:
            await store._sweep.look()
            for _ in range(4):
                for number in range(10):
                    await store.put(A, saying(str(number)))
                await turn(store)
                await store.put(A, saying("in between"))
                await store.compact(await newest(store))
                await store.put(A, saying("after it"))
                await store._sweep.look()
                assert len(await pair.bodies()) <= 3
                assert await pair.queue() == [b"things\0ns\0a"]
            assert said((await store.list(BUCKET)).rows) == ["a=after it"]

    async def test_what_was_put_and_never_referred_to_is_swept(self, pair: Pair) -> None:
        async with pair.opened() as store:
            await store.put(A, saying("x"))
            with suppress(asyncio.CancelledError):
                async with store._overrides.stored(B, b"w" * 8, b"of a cancelled request", store._client):
                    raise asyncio.CancelledError
            assert len(await pair.bodies()) == 2
            assert await sweep(store) == 1
            assert len(await pair.bodies()) == 1
            assert await pair.queue() == []

    async def test_a_write_that_is_refused_leaves_nothing(self, pair: Pair) -> None:
        async with pair.opened() as store:
            row = await store.put(A, saying("x"))
            for _ in range(5):
                with pytest.raises(Exists):
                    await store.put(A, saying("y"), expect=0)
                with pytest.raises(Changed):
                    await store.put(A, saying("y"), expect=row.revision - 1)
            assert len(await pair.bodies()) == 1
            assert await store.get(A) == row

    async def test_a_write_that_is_refused_after_a_lost_answer_leaves_its_body_to_the_sweep(
        self, pair: Pair, lose_an_answer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with pair.opened() as store, pair.opened() as other:
            row = await store.put(A, saying("x"))
            await other.up_to(row.revision)
            late = Late(other, monkeypatch)
            writing = await late.begin(other.put(A, saying("y"), expect=0))
            lose_an_answer()
            late.go_on.set()
            with pytest.raises(Exists):
                await writing
            assert len(await pair.bodies()) == 2
            assert await sweep(store) == 1

    async def test_a_deletion_that_is_announced_and_late_leaves_nothing(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with pair.opened() as store, pair.opened() as other:
            row = await store.put(A, saying("x"))
            await other.up_to(row.revision)
            late = Late(other, monkeypatch)
            deleting = await late.begin(other.delete(A, expect=row.revision))
            await sweep(store)
            await sweep(store)
            late.go_on.set()
            await deleting
            assert await store.get(A) is None
            assert await sweep(store) == 1
            assert await pair.bodies() == []
            assert await pair.queue() == []

    async def test_a_writer_that_stands_still_does_not_refer_to_what_was_swept(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with pair.opened() as store, pair.opened() as other:
            row = await store.put(A, saying("x"))
            await other.up_to(row.revision)
            late = Late(other, monkeypatch)
            writing = await late.begin(other.put(B, saying("late"), expect=0))
            assert len(await pair.bodies()) == 2
            assert await sweep(store) == 1  # the body that it has put
            late.go_on.set()
            row = await writing
            assert await store.get(B) == row
            assert said((await store.list(BUCKET)).rows) == ["a=x", "b=late"]
            assert await sweep(store) == 0
            assert len(await pair.bodies()) == 2

    async def test_two_servers_take_turns(self, pair: Pair) -> None:
        async with pair.opened() as one, pair.opened() as other:
            for store in (one, other):
                for number in range(3):
                    await store.put(A, saying(str(number)))
            for _ in range(6):
                await asyncio.gather(*map(turn, (one, other)))
            assert len(await pair.bodies()) == 1
            assert said((await other.list(BUCKET)).rows) == ["a=2"]

    async def test_sweeps_while_servers_write_lose_nothing(self, pair: Pair) -> None:
        async with pair.opened() as one, pair.opened() as other:
            stop = asyncio.Event()

            async def write(store: EtcdStore, name: str) -> None:
                key = Key(BUCKET, "ns", name)
                for number in itertools.count():
                    if stop.is_set():
                        return
                    row = await store.put(key, saying(str(number)))
                    current = await one.get(key)
                    assert current == row
                    if number % 3 == 2:
                        await store.delete(key, expect=row.revision)

            async with asyncio.TaskGroup() as group:
                for number in range(6):
                    group.create_task(write((one, other)[number % 2], str(number)))
                deleted = 0
                for _ in range(15):
                    deleted += await sweep(one)
                stop.set()
            assert deleted > 50
            await sweep(other)
            await sweep(other)
            rows = (await other.list(BUCKET)).rows
            assert len(await pair.bodies()) == len(rows)
            assert not len(one.damage) + len(other.damage)

    async def test_what_the_feed_still_waits_for_is_not_compacted(
        self, pair: Pair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with pair.opened() as store, pair.opened() as other:
            answers, read = asyncio.Event(), store._overrides.read

            async def late(references: Sequence[Reference]) -> list[bytes | None]:
                await answers.wait()
                return await read(references)

            monkeypatch.setattr(store._overrides, "read", late)
            watch = store.watch(BUCKET, after=store.revision)
            for number in range(3):
                await other.put(A, saying(str(number)))
            for _ in range(3):
                await store._compaction.look()
            answers.set()
            events = list[Event]()
            while len(events) < 3:
                events += await watch.next(60) or ()
            assert [event.row.body for event in events] == [b"0", b"1", b"2"]

    async def test_the_other_etcd_is_compacted_too(self, pair: Pair) -> None:
        async with pair.opened(compact_every_s=3_600) as store:
            client = store._overrides.clients[0]
            for number in range(5):
                await store.put(A, saying(str(number)))
            before = (await client.call(RANGE, RangeRequest(key=b"x"))).header.revision
            await sweep(store)
            with pytest.raises(Compacted):
                await client.call(RANGE, RangeRequest(key=b"x", revision=before - 1))


class Late:
    """Lets a server stand still before the second of its next transactions: the one on the main etcd."""

    def __init__(self, store: EtcdStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self._left = 2
        for client in (store._client, *store._overrides.clients):
            monkeypatch.setattr(client, "call", partial(self._call, client.call))

    async def begin(self, write: Coroutine[Any, Any, Row]) -> asyncio.Task[Row]:
        """Start a write, and return it once the server stands still."""
        task = asyncio.create_task(write)
        await self.reached.wait()
        return task

    async def _call(self, call: Callable[..., Awaitable[Any]], method: Method, request: Any) -> Any:
        if method is TXN:
            self._left -= 1
            if self._left == 0:
                self.reached.set()
                await self.go_on.wait()
        return await call(method, request)


async def test_a_write_whose_second_answer_is_lost_happens_once(
    pair: Pair, lose_an_answer: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair.opened() as store:
        start = store.revision
        late = Late(store, monkeypatch)
        writing = await late.begin(store.put(A, saying("x"), expect=0))
        lose_an_answer()
        late.go_on.set()
        row = await writing
        assert [event.row for event in await events_of(store, after=start)] == [row]
        assert len(await pair.bodies()) == 1


class TestFaults:
    """Two etcds of a test's own, of which one fails."""

    @pytest.fixture
    def own(self, tmp_path: Path) -> Iterator[Pair]:
        """A new store."""
        folders = [tmp_path / name for name in ("main", "other")]
        for folder in folders:
            folder.mkdir()
        with running_etcd(folders[0]) as main, running_etcd(folders[1]) as other:
            yield Pair(main, other, "/faults")

    @pytest.mark.parametrize("failing", ["main", "other"])
    @pytest.mark.parametrize("fault", [kill, pause])
    async def test_nothing_is_lost_or_doubled(self, own: Pair, failing: str, fault: Fault) -> None:
        etcd = {"main": own.main, "other": own.other}[failing]
        async with own.opened() as one, own.opened() as two:
            sweeping = asyncio.create_task(sweep_always([one, two]))
            await bear([one, two], partial(fault, etcd, [one, two]))
            sweeping.cancel()
        async with own.opened() as store:
            assert len((await store.list(BUCKET)).rows) > 100
            await sweep(store)
            await sweep(store)
            assert len(await own.bodies()) == await store.count(BUCKET)
            assert await own.queue() == []
            assert not len(store.damage)

    async def test_the_feed_waits_for_the_other_etcd_and_says_so(self, own: Pair) -> None:
        async with own.opened(patience_s=2.0) as store, own.opened() as other:
            await other.put(A, saying("x"))
            await store.up_to(other.revision)
            watch = store.watch(BUCKET, after=store.revision)
            own.other.pause()
            writing = asyncio.create_task(other.put(A, saying("y")))
            with pytest.raises(Unavailable, match=f"etcd at {own.other.member} does not answer"):
                await store.put(B, saying("y"))
            assert own.other.member in store.trouble
            with pytest.raises(Unavailable, match=f"etcd at {own.other.member}"):
                await store.check()
            await store.put(PLAIN, saying("the main one works"))
            own.other.resume()
            row = await writing
            batch = await watch.next(60)
            assert batch is not None
            assert batch[0].row == row
            await store.check()
            assert store.trouble == ""

    async def test_another_etcd_that_is_full_is_seen_and_named(self, tmp_path: Path) -> None:
        for name in ("main", "other"):
            (tmp_path / name).mkdir()
        flags = (f"--quota-backend-bytes={4 << 20}",)
        with running_etcd(tmp_path / "main") as main, running_etcd(tmp_path / "other", flags=flags) as other:
            pair = Pair(main, other, "/full")
            async with pair.opened(quota_bytes=4 << 20) as store:
                with pytest.raises(Full, match=f"etcd at {other.member} is full"):
                    await write_megabytes(store)
                await store._quota.measure()
                assert store.usage is not None
                assert f"etcd's database at {other.member} has" in store.usage.warning
                await store.put(PLAIN, saying("the main one works"))
                rows = (await store.list(BUCKET)).rows
                assert len(rows) == 2
                # What is not used is removed, although no more can be written there.
                assert await sweep(store) > 0

    async def test_a_main_etcd_that_is_full_does_not_fill_the_other_one(
        self, tmp_path: Path, other_etcd: Etcd
    ) -> None:
        with running_etcd(tmp_path, flags=(f"--quota-backend-bytes={4 << 20}",)) as main:
            pair = Pair(main, other_etcd, "/full-main")
            async with pair.opened() as store:
                with pytest.raises(Full, match=f"etcd at {main.member} is full"):
                    await write_megabytes(store, "plain")
                for _ in range(5):
                    with pytest.raises(Full):
                        await store.put(A, saying("x"))
                assert len(await pair.bodies()) <= 1
                await asyncio.to_thread(main.maintain, "defragment")
                await asyncio.to_thread(disarm, main)
                await store.compact(store.revision)
                await asyncio.to_thread(main.maintain, "defragment")
                assert (await store.put(A, saying("x"))).body == b"x"

    async def test_writers_that_are_killed_leave_nothing_but_what_they_have_written(self, own: Pair) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        for number in range(4):
            command = [sys.executable, overriding_child.__file__, own.main.member, own.other.member]
            child = await asyncio.create_subprocess_exec(
                *command, own.prefix, f"{number}", stdout=asyncio.subprocess.PIPE, env=environment
            )
            assert child.stdout is not None
            for _ in range(100):
                assert await child.stdout.readline()
            child.kill()
            await child.wait()
        async with own.opened() as store:
            rows = (await store.list(BUCKET)).rows
            assert len(await own.bodies()) > len(rows) > 100
            await sweep(store)
            assert sorted((await store.list(BUCKET)).rows) == sorted(rows)
            assert len(await own.bodies()) == len(rows)
            assert await own.queue() == []


async def write_megabytes(store: EtcdStore, bucket: str = BUCKET) -> None:
    """Write two rows alternately."""
    for name in itertools.cycle("ab"):
        await store.put(Key(bucket, "", name), holding(os.urandom(1 << 20)))


async def sweep_always(stores: list[EtcdStore]) -> None:
    """Compact what all of them have received, and sweep, also while an etcd does not answer."""
    while True:
        for store in stores:
            with suppress(StoreError):
                await store.compact(min(store.revision for store in stores))
            with suppress(StoreError):
                await store._sweep.look()
            await asyncio.sleep(0.1)
