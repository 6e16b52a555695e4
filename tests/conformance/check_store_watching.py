"""What every store must tell those who watch: see `check_store`."""

from __future__ import annotations

import asyncio

import pytest

from certwright.kube.store.contract import Compacted, Event, FutureRevision, Key, SlowWatcher, Store
from conformance.store_words import BUCKET, A, OpenStore, events_of, row_saying, saying


class WatchingContract:
    """`watch`: each event exactly once, in order."""

    async def test_events_say_what_changed_and_what_was_there(self, store: Store) -> None:
        start = store.revision
        first = await store.put(A, saying("one"))
        second = await store.put(A, saying("two"))
        gone = await store.delete(A, saying("bye"))
        assert await events_of(store, after=start) == [
            Event(start + 1, first, None),
            Event(start + 2, second, first),
            Event(start + 3, gone, second, deleted=True),
        ]
        assert gone == row_saying(A, start + 3, "bye")

    async def test_the_past_is_replayed_and_the_present_follows(self, store: Store) -> None:
        start = store.revision
        for number in range(5):
            await store.put(A, saying(str(number)))
        watch = store.watch(BUCKET, after=start + 2)
        writes = [asyncio.ensure_future(store.put(A, saying(str(number)))) for number in range(5)]
        revisions: list[int] = []
        async for batch in watch:
            assert batch
            revisions += [event.revision for event in batch]
            if revisions[-1] == start + 10:
                break
        assert revisions == list(range(start + 3, start + 11))
        await asyncio.gather(*writes)

    async def test_watches_begun_at_any_moment_miss_and_repeat_nothing(self, store: Store) -> None:
        start = store.revision
        watches = []
        writes = [asyncio.ensure_future(store.put(Key(BUCKET, "", str(n)), saying("x"))) for n in range(200)]
        while not all(write.done() for write in writes):
            watches.append((store.revision, store.watch(BUCKET, after=store.revision)))
            await asyncio.sleep(0)
        for after, watch in watches:
            got: list[int] = []
            while len(got) < start + 200 - after:
                got += [event.revision for event in await watch.next(timeout_s=60) or ()]
            assert got == list(range(after + 1, start + 201))

    async def test_a_watch_hears_only_of_its_bucket_and_namespace(self, store: Store) -> None:
        start = store.revision
        keys = [Key(bucket, namespace, "n") for bucket in (BUCKET, "b") for namespace in ("", "x", "y")]
        live = {
            namespace: store.watch(BUCKET, after=start, namespace=namespace) for namespace in (None, "", "x")
        }
        for key in keys:
            await store.put(key, saying("x"))
        for namespace, watch in live.items():
            replayed = await store.watch(BUCKET, after=start, namespace=namespace).next()
            heard: list[Event] = []
            while watch.position < store.revision:
                heard += await watch.next(timeout_s=0.05) or ()
            assert heard == replayed
            expected = [key for key in keys if key.bucket == BUCKET and namespace in (None, key.namespace)]
            assert [event.row.key for event in heard] == expected

    async def test_the_position_moves_on_over_what_does_not_concern_the_watch(self, store: Store) -> None:
        start = store.revision
        watch = store.watch(BUCKET, after=start)
        assert watch.position == start
        await store.put(Key("b", "", "n"), saying("x"))
        assert await watch.next(timeout_s=0.01) == []
        assert watch.position == start + 1
        await store.put(A, saying("x"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert watch.position == start + 1
        assert len(await watch.next() or ()) == 1
        assert watch.position == start + 2

    async def test_a_watch_from_a_revision_that_is_too_old_is_refused(self, open_store: OpenStore) -> None:
        store = await open_store(window_bytes=10_000)
        start = store.revision
        await store.put(Key("b", "", "quiet"), saying("x"))
        for _ in range(40):
            await store.put(A, lambda revision: (b"", b"x" * 1000))
        with pytest.raises(Compacted) as refused:
            store.watch(BUCKET, after=start + 5)
        oldest = refused.value.oldest
        events = await store.watch(BUCKET, after=oldest).next()
        assert events is not None
        assert [event.revision for event in events] == list(range(oldest + 1, start + 42))
        await store.close()

    async def test_a_watch_from_the_future_is_refused(self, store: Store) -> None:
        with pytest.raises(FutureRevision):
            store.watch(BUCKET, after=store.revision + 1)

    async def test_a_watcher_that_takes_nothing_is_cut_off(self, store: Store) -> None:
        slow, quick = store.watch(BUCKET, after=store.revision), store.watch(BUCKET, after=store.revision)
        for _ in range(64):
            await store.put(A, lambda revision: (b"", b"x" * (1 << 20)))
            assert await quick.next()
        with pytest.raises(SlowWatcher):
            [batch async for batch in slow]

    async def test_writers_go_on_before_the_watchers_that_are_woken(self, store: Store) -> None:
        start = store.revision
        order: list[str] = []

        async def watcher() -> None:
            await store.watch(BUCKET, after=start).next()
            order.append("watcher")

        async def writer() -> None:
            await store.put(A, saying("x"))
            order.append("writer")

        task = asyncio.ensure_future(watcher())
        await asyncio.sleep(0)
        await asyncio.gather(writer(), task)
        assert order == ["writer", "watcher"]

    async def test_a_lone_write_is_answered_when_takers_have_it(self, open_store: OpenStore) -> None:
        store = await open_store()
        watch = store.watch(BUCKET, after=store.revision)
        taken: list[int] = []

        def take(batch: list[Event]) -> bool:
            taken.extend(event.revision for event in batch)
            return True

        watch.deliver_to(take)
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        row = await store.put(A, saying("x"))
        assert taken == [row.revision]
        row = await store.put(A, saying("y"))
        await store.close()
        assert taken[1:] == [row.revision]
        assert await waiting is None

    async def test_closing_a_watch_ends_it(self, store: Store) -> None:
        watch = store.watch(BUCKET, after=store.revision)
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        watch.close()
        watch.close()
        assert await waiting is None
        await store.put(A, saying("x"))
        assert await watch.next() is None
        assert [batch async for batch in watch] == []

    async def test_closing_the_store_ends_watches_after_the_last_event(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        watch = store.watch(BUCKET, after=start)
        await store.put(A, saying("x"))
        await store.close()
        assert [[event.revision for event in batch] async for batch in watch] == [[start + 1]]
        assert await watch.next() is None

    async def test_a_wait_for_events_that_is_cancelled_loses_none(self, store: Store) -> None:
        watch = store.watch(BUCKET, after=store.revision)
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await store.put(A, saying("x"))
        assert len(await watch.next(timeout_s=60) or ()) == 1
