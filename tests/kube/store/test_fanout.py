"""Watchers that are slow, large and many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from certwright.kube.store.contract import Event, Key, Row, SlowWatcher
from certwright.kube.store.fanout import Fanout, Subscription
from certwright.kube.store.log import EventLog


def events(first: int, last: int, *, size: int = 0) -> list[Event]:
    """One commit."""
    return [
        Event(revision, Row(Key("b", "", "n"), revision, b"", b"x" * size), None)
        for revision in range(first, last + 1)
    ]


async def test_a_commit_comes_as_one_batch() -> None:
    fanout = Fanout(EventLog())
    watch = fanout.subscribe("b", after=0)
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    fanout.publish(events(1, 3))
    batch = await waiting
    assert batch is not None
    assert [event.revision for event in batch] == [1, 2, 3]


async def test_watchers_do_not_share_their_batches() -> None:
    fanout = Fanout(EventLog())
    watches = [fanout.subscribe("b", after=0) for _ in range(2)]
    fanout.publish(events(1, 2))
    first, second = [await watch.next() for watch in watches]
    assert first == second
    assert first is not second
    assert first is not None
    assert second is not None
    assert first[0] is second[0]


async def test_too_many_waiting_bytes_cut_a_watcher_off() -> None:
    fanout = Fanout(EventLog(), max_retained_bytes=10_000)
    watch = fanout.subscribe("b", after=0)
    for revision in range(1, 6):
        fanout.publish(events(revision, revision, size=4_000))
        await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(SlowWatcher):
            await watch.next()
    assert watch.position == 0
    watch.close()
    assert await watch.next() is None


async def test_one_large_commit_does_not_cut_a_watcher_off() -> None:
    fanout = Fanout(EventLog(), max_retained_bytes=100)
    watch = fanout.subscribe("b", after=0)
    fanout.publish(events(1, 10, size=1_000))
    assert len(await watch.next() or ()) == 10


async def test_a_watcher_that_fell_behind_is_handed_a_bounded_number_of_bytes_at_a_time() -> None:
    fanout = Fanout(EventLog())
    watch = fanout.subscribe("b", after=0)
    for first in range(1, 41, 10):
        fanout.publish(events(first, first + 9, size=50_000))
        await asyncio.sleep(0.001)
    seen = list[int]()
    while len(seen) < 40:
        batch = await watch.next()
        assert batch is not None
        assert sum(len(event.row.body) for event in batch) < 350_000
        assert watch.position == batch[-1].revision
        seen += [event.revision for event in batch]
    assert seen == list(range(1, 41))


def other(revision: int, *, size: int) -> list[Event]:
    """A commit in a bucket of its own."""
    return [Event(revision, Row(Key(f"b{revision}", "", "n"), revision, b"", b"x" * size), None)]


async def test_slow_watchers_of_different_buckets_keep_a_bounded_number_of_bytes_together() -> None:
    fanout = Fanout(EventLog(max_bytes=1), max_retained_bytes=100_000)
    watches = [fanout.subscribe(f"b{revision}", after=0) for revision in range(1, 41)]
    for revision in range(1, 41):
        fanout.publish(other(revision, size=10_000))
        await asyncio.sleep(0.001)
    kept = [watch for watch in watches if watch.waiting_since is not None]
    assert 8 <= len(kept) <= 12
    assert kept == watches[-len(kept) :]
    with pytest.raises(SlowWatcher):
        await watches[0].next()
    assert await watches[-1].next() == other(40, size=10_000)


async def test_a_watcher_that_takes_some_of_its_events_is_judged_by_the_oldest_that_it_has_not_taken() -> (
    None
):
    fanout = Fanout(EventLog(max_bytes=1), max_retained_bytes=2_000_000)
    watch = fanout.subscribe("b", after=0)
    fanout.publish(events(1, 1, size=300_000))
    await asyncio.sleep(0.001)
    fanout.publish(events(2, 2, size=300_000))
    await asyncio.sleep(0.001)
    first = watch.waiting_since
    assert first is not None
    await watch.next()
    second = watch.waiting_since
    assert second is not None
    assert second > first
    await watch.next()
    assert watch.waiting_since is None


async def test_a_watcher_that_takes_its_events_may_get_any_number() -> None:
    fanout = Fanout(EventLog(), max_retained_bytes=1_000)
    watch = fanout.subscribe("b", after=0)
    for first in range(1, 100, 3):
        fanout.publish(events(first, first + 2))
        assert len(await watch.next() or ()) == 3


async def test_only_one_may_wait_on_a_watch() -> None:
    watch = Fanout(EventLog()).subscribe("b", after=0)
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError):
        await watch.next()
    watch.close()
    assert await waiting is None


async def test_a_watch_that_is_ended_hands_out_what_waits_and_nothing_later() -> None:
    fanout = Fanout(EventLog())
    watch = fanout.subscribe("b", after=0)
    fanout.publish(events(1, 2))
    watch.end()
    fanout.publish(events(3, 3))
    fanout.close()  # who is still there is told
    assert [event.revision for event in await watch.next() or ()] == [1, 2]
    assert await watch.next() is None


async def test_a_closed_fanout_still_tells_what_was_published() -> None:
    fanout = Fanout(EventLog())
    watch = fanout.subscribe("b", after=0)
    fanout.publish(events(1, 1))
    fanout.close()
    assert len(await watch.next() or ()) == 1
    assert await watch.next() is None
    assert len(await fanout.subscribe("b", after=0).next() or ()) == 1


@contextmanager
def stopped_clock() -> Iterator[None]:
    """The loop's clock stands still, however long the machine takes."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", lambda: now)
        yield


async def test_while_many_are_being_told_what_follows_gathers() -> None:
    fanout = Fanout(EventLog())
    watches = [fanout.subscribe("b", after=0) for _ in range(1000)]
    with stopped_clock():
        fanout.publish(events(1, 1))
        for watch in watches:
            assert [event.revision for event in await watch.next() or []] == [1]
        fanout.publish(events(2, 2))
        for _ in range(5):
            await asyncio.sleep(0)
        fanout.publish(events(3, 3))
    batches = [await watch.next() for watch in watches]
    assert {tuple(event.revision for event in batch or []) for batch in batches} == {(2, 3)}


async def test_a_wait_ends_in_time_also_after_a_longer_one() -> None:
    fanout = Fanout(EventLog())
    watch = fanout.subscribe("b", after=0)
    fanout.publish(events(1, 1))
    assert await watch.next(60)
    assert await asyncio.wait_for(watch.next(0.02), 50) == []
    assert await asyncio.wait_for(watch.next(0.01), 50) == []
    watch.close()


async def test_a_batch_goes_straight_to_the_taker_while_its_reader_waits() -> None:
    fanout = Fanout(EventLog())
    watch = fanout.subscribe("b", after=0)
    taken: list[Event] = []

    def take(batch: list[Event]) -> bool:
        taken.extend(batch)
        return True

    watch.deliver_to(take)
    fanout.publish(events(1, 1))
    await asyncio.sleep(0)
    assert taken == []
    assert [event.revision for event in await watch.next() or ()] == [1]
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    fanout.publish(events(2, 3))
    await asyncio.sleep(0)
    assert [event.revision for event in taken] == [2, 3]
    assert not waiting.done()
    assert watch.position == 3
    watch.close()
    assert await waiting is None


@pytest.mark.parametrize("fails", [False, True])
async def test_what_the_taker_does_not_take_its_reader_gets_in_order(*, fails: bool) -> None:
    fanout = Fanout(EventLog())
    watch = fanout.subscribe("b", after=0)

    def refuse(_: list[Event]) -> bool:
        if fails:
            raise RuntimeError
        return False

    watch.deliver_to(refuse)
    waiting = asyncio.ensure_future(watch.next())
    await asyncio.sleep(0)
    others = [fanout.subscribe("b", after=0) for _ in range(100)]
    with stopped_clock():  # The second commit waits for the pause that many watchers make necessary.
        fanout.publish(events(1, 2))
        fanout.publish(events(3, 3))
    assert [event.revision for event in await waiting or ()] == [1, 2]
    assert [event.revision for event in await watch.next() or ()] == [3]
    assert watch.position == 3
    for other in others:
        other.close()


def listening(
    watches: list[Subscription],
) -> tuple[list[list[int]], list[asyncio.Future[list[Event] | None]]]:
    """What each watcher's taker has heard, and their waits."""
    heard: list[list[int]] = [[] for _ in watches]

    def taker(own: list[int]) -> Callable[[list[Event]], bool]:
        def take(batch: list[Event]) -> bool:
            own.extend(event.revision for event in batch)
            return True

        return take

    for watch, own in zip(watches, heard, strict=True):
        watch.deliver_to(taker(own))
    return heard, [asyncio.ensure_future(watch.next()) for watch in watches]


async def test_watchers_have_heard_of_a_commit_when_its_writer_goes_on() -> None:
    fanout = Fanout(EventLog())
    heard, waiting = listening([fanout.subscribe("b", after=0) for _ in range(100)])
    await asyncio.sleep(0)
    with stopped_clock():
        fanout.publish(events(1, 2))
        assert heard == [[1, 2]] * 100
        assert fanout.delivered == 2
        # These follow too soon: they are told together, a little later.
        fanout.publish(events(3, 3))
        fanout.publish(events(4, 4))
        assert heard == [[1, 2]] * 100
    fanout.close()
    assert heard == [[1, 2, 3, 4]] * 100
    assert await asyncio.gather(*waiting) == [None] * 100


async def test_a_few_watchers_receive_every_commit_before_its_writer_goes_on() -> None:
    fanout = Fanout(EventLog())
    received, waiting = listening([fanout.subscribe("b", after=0) for _ in range(10)])
    await asyncio.sleep(0)
    with stopped_clock():
        for revision in range(1, 50, 2):
            fanout.publish(events(revision, revision + 1))
            assert {own[-1] for own in received} == {revision + 1}
    fanout.close()
    assert await asyncio.gather(*waiting) == [None] * 10


async def test_a_thousand_watchers_are_told_in_turns_and_each_hears_everything_once_and_in_order() -> None:
    fanout = Fanout(EventLog())
    watches = [fanout.subscribe("b", after=0) for _ in range(1000)]
    heard, waiting = listening(watches)
    await asyncio.sleep(0)
    fanout.publish(events(1, 2))
    assert 0 < sum(map(bool, heard)) < 1000
    assert fanout.delivered == 0
    assert {watch.position for watch, own in zip(watches, heard, strict=True) if not own} == {0}
    # Written while the others are being told, and one of them goes.
    fanout.publish(events(3, 3))
    gone = next(number for number, own in enumerate(heard) if not own)
    watches[gone].close()
    while fanout.delivered < 3:  # noqa: ASYNC110 - the fan-out itself paces this
        await asyncio.sleep(0)
    assert heard.pop(gone) == []
    assert heard == [[1, 2, 3]] * 999
    fanout.publish(events(4, 4))
    fanout.close()
    assert heard == [[1, 2, 3, 4]] * 999
    assert await asyncio.gather(*waiting) == [None] * 1000


async def test_who_is_interrupted_while_being_told_hears_nothing_twice() -> None:
    fanout = Fanout(EventLog())
    watches = [fanout.subscribe("b", after=0) for _ in range(300)]
    heard, waiting = listening(watches)
    await asyncio.sleep(0)
    fanout.publish(events(1, 1))
    fanout.publish(events(2, 2))
    fanout.interrupt(9)
    assert heard == [[1, 2]] * 300
    assert fanout.delivered == 9
    fanout.publish(events(10, 10))
    await asyncio.sleep(0)
    assert heard == [[1, 2]] * 300
    for wait in waiting:
        with pytest.raises(SlowWatcher):
            await wait
    assert len(await fanout.subscribe("b", after=9).next() or ()) == 1
