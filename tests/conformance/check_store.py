"""What every store must do: the sentences of `certwright.store.contract`, as tests.

To check a store, subclass `StoreContract` in a test module and give it a fixture `open_store`, which returns
an `OpenStore`; then give `model_machine` the same to compare the store with a dictionary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from certwright.store.contract import (
    Changed,
    Compacted,
    Encode,
    Event,
    Exists,
    FutureRevision,
    Key,
    Missing,
    Page,
    Row,
    SlowWatcher,
    Store,
    StoreError,
    Unavailable,
    Watch,
)


class OpenStore(Protocol):
    """Opens a new, empty store. The window of recent events holds about `window_bytes`, None: enough."""

    def __call__(self, *, window_bytes: int | None = None) -> Coroutine[Any, Any, Store]:
        """The store; whoever asked for it closes it."""


BUCKET = "things"
A, B, C = (Key(BUCKET, "ns", name) for name in "abc")


def saying(text: str) -> Encode:
    """Encodes `text` as the body, and the revision as the meta."""
    return lambda revision: (b"%d" % revision, text.encode())


def said(rows: Sequence[Row]) -> list[str]:
    """What rows say, as `name=text`."""
    return [f"{row.key.name}={row.body.decode()}" for row in rows]


def row_saying(key: Key, revision: int, text: str) -> Row:
    """What `saying` leaves at a revision."""
    return Row(key, revision, b"%d" % revision, text.encode())


def holding(content: bytes) -> Encode:
    """Encodes `content` as the body, and its beginning as the meta."""
    return lambda revision: (content[:9_000], content)


async def all_pages(store: Store, *, limit: int, **arguments: Any) -> list[Page]:
    """Every page of a list of `BUCKET`, each of the first one's revision."""
    pages = [await store.list(BUCKET, limit=limit, **arguments)]
    while pages[-1].more:
        after, revision = pages[-1].last, pages[0].revision
        pages.append(await store.list(BUCKET, limit=limit, after=after, revision=revision, **arguments))
    return pages


async def fill(store: Store, count: int, *, namespace: str = "ns") -> list[Row]:
    """Write rows `000`, `001` … at the same time."""
    keys = [Key(BUCKET, namespace, f"{number:03}") for number in range(count)]
    return await asyncio.gather(*(store.put(key, saying("old"), expect=0) for key in keys))


async def events_of(store: Store, *, after: int) -> list[Event]:
    """Every event of `BUCKET` after a revision so far, from a new watch."""
    watch = store.watch(BUCKET, after=after)
    events: list[Event] = []
    while batch := await watch.next(timeout_s=0.2 if store.revision > watch.position else 0):
        events += batch
    watch.close()
    return events


class WritingContract:
    """`put` and `delete`, and what they are refused for."""

    async def test_a_new_store_is_empty(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        assert await store.get(A) is None
        assert await store.list(BUCKET) == Page([], start)
        assert await store.count(BUCKET) == 0
        await store.close()

    async def test_what_was_put_is_there_at_the_next_revision(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        row = await store.put(A, saying("x"), expect=0)
        assert row == row_saying(A, start + 1, "x")
        assert await store.get(A) == row
        assert store.revision == start + 1
        await store.close()

    async def test_every_write_takes_the_next_revision_across_buckets(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        await store.put(A, saying("x"))
        await store.put(Key("others", "", "a"), saying("x"))
        deleted = await store.delete(A)
        assert deleted.revision == start + 3
        assert store.revision == start + 3
        await store.close()

    async def test_equal_names_in_other_namespaces_and_buckets_are_other_rows(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        keys = [Key(bucket, namespace, "n") for bucket in ("p", "q") for namespace in ("", "x")]
        for key in keys:
            await store.put(key, saying(str(key)), expect=0)
        for key in keys:
            row = await store.get(key)
            assert row is not None
            assert row.body.decode() == str(key)
        await store.close()

    async def test_a_put_that_expects_nothing_replaces_what_is_there(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        await store.put(A, saying("one"))
        row = await store.put(A, saying("two"))
        assert (row.revision, row.body) == (start + 2, b"two")
        assert await store.get(A) == row
        await store.close()

    async def test_a_row_that_must_not_exist_but_does_is_handed_over(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        first = await store.put(A, saying("one"), expect=0)
        with pytest.raises(Exists) as refused:
            await store.put(A, saying("two"), expect=0)
        assert refused.value.current == first
        assert store.revision == start + 1
        await store.close()

    async def test_a_row_at_the_expected_revision_is_replaced(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await store.put(A, saying("one"))
        second = await store.put(A, saying("two"), expect=first.revision)
        assert second.revision == first.revision + 1
        await store.close()

    async def test_a_row_at_another_revision_is_handed_over(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await store.put(A, saying("one"))
        second = await store.put(A, saying("two"))
        with pytest.raises(Changed) as refused:
            await store.put(A, saying("three"), expect=first.revision)
        assert refused.value.current == second
        with pytest.raises(Changed):
            await store.delete(A, expect=first.revision)
        assert await store.get(A) == second
        await store.close()

    async def test_a_row_that_must_exist_but_does_not_is_missed(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        with pytest.raises(Missing):
            await store.put(A, saying("x"), expect=start or 1)
        with pytest.raises(Missing):
            await store.delete(A)
        with pytest.raises(Missing):
            await store.delete(A, expect=start or 1)
        assert store.revision == start
        await store.close()

    async def test_a_deleted_row_is_gone_and_may_come_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        first = await store.put(A, saying("one"))
        assert await store.delete(A, expect=first.revision) == first._replace(revision=start + 2)
        assert await store.get(A) is None
        again = await store.put(A, saying("two"), expect=0)
        assert again.revision == start + 3
        await store.close()

    async def test_a_deletion_can_leave_last_words(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        await store.put(A, saying("one"))
        assert await store.delete(A, saying("farewell")) == row_saying(A, start + 2, "farewell")
        await store.close()

    async def test_a_write_whose_encoding_fails_has_not_happened(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        await store.put(A, saying("one"))

        def fail(revision: int) -> tuple[bytes, bytes]:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await store.put(A, fail)
        with pytest.raises(ValueError, match="no"):
            await store.delete(A, fail)
        assert said([row for row in [await store.get(A)] if row]) == ["a=one"]
        assert (await store.put(B, saying("two"))).revision == start + 2
        await store.close()

    async def test_the_encoder_is_called_once_and_the_revision_is_where_it_has_put_it(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        calls: list[int] = []

        def encode(revision: int) -> tuple[bytes, bytes]:
            calls.append(revision)
            return b"at %d" % revision, b""

        row = await store.put(A, encode)
        assert len(calls) == 1
        assert row.meta == b"at %d" % row.revision
        await store.close()

    async def test_bytes_of_every_kind_and_size_come_back(self, open_store: OpenStore) -> None:
        store = await open_store()
        contents = [b"", bytes(range(256)), b"x" * 20_000, b"\0" * 3_000_000]
        for content in contents:
            await store.put(A, holding(content))
            row = await store.get(A)
            assert row is not None
            assert (row.meta, row.body) == (content[:9_000], content)
        await store.close()

    async def test_a_closed_store_takes_no_writes(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.close()
        await store.close()
        with pytest.raises(Unavailable):
            await store.put(A, saying("x"))
        with pytest.raises(Unavailable):
            await store.delete(A)


class ConcurrencyContract:
    """Writes that are under way at the same time."""

    async def test_of_many_that_create_one_wins(self, open_store: OpenStore) -> None:
        store = await open_store()
        results = await asyncio.gather(
            *(store.put(A, saying(str(number)), expect=0) for number in range(50)), return_exceptions=True
        )
        won = [result for result in results if isinstance(result, Row)]
        assert len(won) == 1
        assert won[0] is results[0]
        assert all(isinstance(result, Exists) and result.current == won[0] for result in results[1:])
        await store.close()

    async def test_of_many_that_replace_one_revision_one_wins(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await store.put(A, saying("first"))
        results = await asyncio.gather(
            *(store.put(A, saying(str(n)), expect=first.revision) for n in range(50)), return_exceptions=True
        )
        assert isinstance(results[0], Row)
        assert all(isinstance(result, Changed) for result in results[1:])
        await store.close()

    async def test_conflicts_are_decided_in_the_order_of_the_calls(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        results = await asyncio.gather(
            store.put(A, saying("1"), expect=0),
            store.delete(A),
            store.put(A, saying("3"), expect=0),
            store.put(A, saying("4"), expect=0),
            store.put(A, saying("5")),
            return_exceptions=True,
        )
        assert isinstance(results[3], Exists)
        revisions = [result.revision for result in results if isinstance(result, Row)]
        # In etcd there may be others between: what the store writes for itself takes a revision as well.
        assert [start, *revisions] == sorted({start, *revisions})
        assert len(revisions) == 4
        assert said((await store.list(BUCKET)).rows) == ["a=5"]
        assert [event.revision for event in await events_of(store, after=start)] == revisions
        await store.close()

    async def test_a_refused_write_is_answered_after_the_one_it_lost_to(self, open_store: OpenStore) -> None:
        store = await open_store()
        winner = asyncio.ensure_future(store.put(A, saying("one"), expect=0))
        await asyncio.sleep(0)
        with pytest.raises(Exists) as refused:
            await store.put(A, saying("two"), expect=0)
        assert await store.get(A) == refused.value.current
        await winner
        await store.close()

    async def test_what_is_at_hand_is_committed_and_not_deleted(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await store.put(A, saying("first"))
        assert store.at_hand(A) in (first, None)
        writing = asyncio.ensure_future(store.put(A, saying("second")))
        while not writing.done():
            assert store.at_hand(A) in (await store.get(A), None)
            await asyncio.sleep(0)
        assert store.at_hand(A) in (await writing, None)
        await store.delete(A)
        assert store.at_hand(A) is None
        assert store.at_hand(B) is None
        await store.close()

    async def test_latest_counts_up_without_losing_one(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.put(A, saying("0"))

        async def increment() -> None:
            while True:
                row = await store.latest(A)
                assert row is not None
                try:
                    await store.put(A, saying(str(int(row.body) + 1)), expect=row.revision)
                except Changed:
                    continue
                return

        await asyncio.gather(*(increment() for _ in range(30)))
        row = await store.get(A)
        assert row is not None
        assert row.body == b"30"
        assert await store.latest(A) == row
        await store.close()

    async def test_nothing_is_shown_before_it_is_committed(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        await fill(store, 20)
        before = (await store.list(BUCKET)).rows
        changes = [asyncio.ensure_future(store.put(row.key, saying("new"))) for row in before[:10]]
        changes += [asyncio.ensure_future(store.delete(row.key)) for row in before[10:15]]
        changes += [asyncio.ensure_future(store.put(C, saying("new")))]
        while not all(change.done() for change in changes):
            at = store.revision
            page = await store.list(BUCKET)
            assert at <= page.revision <= store.revision
            assert all(row.revision <= page.revision for row in page.rows)
            if page.revision == start + 20:
                assert page.rows == before
                seen = await store.get(before[0].key), await store.count(BUCKET)
                assert seen == (before[0], 20) or store.revision > page.revision
            await asyncio.sleep(0)
        assert said((await store.list(BUCKET)).rows) == (
            [f"{number:03}=new" for number in range(10)]
            + [f"{number:03}=old" for number in range(15, 20)]
            + ["c=new"]
        )
        assert await store.count(BUCKET) == 16
        await store.close()

    async def test_a_cancelled_write_does_no_harm(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        writes = [asyncio.ensure_future(store.put(A, saying(str(number)))) for number in range(5)]
        await asyncio.sleep(0)
        writes[2].cancel()
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(isinstance(result, Row) for result in results) >= 4
        row = await store.get(A)
        assert row is not None
        assert row.body == b"4"
        assert [event.revision for event in await events_of(store, after=start)] == list(
            range(start + 1, store.revision + 1)
        )
        await store.close()

    async def test_closing_finishes_what_is_under_way(self, open_store: OpenStore) -> None:
        store = await open_store()
        writes = [asyncio.ensure_future(store.put(Key(BUCKET, "", str(n)), saying("x"))) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert len({row.revision for row in await asyncio.gather(*writes)}) == 100


class ListingContract:
    """`list` and `count`."""

    async def grow_old(self, store: Store, revision: int) -> None:
        """Have the store forget what was before a revision, where it does not do that by itself."""

    async def test_rows_come_in_order_of_namespace_and_name(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        places = [
            ("b", "a"),
            ("", "z"),
            ("a", "b"),
            ("a-", "a"),
            ("a", "a.b"),
            ("a", "a"),
            ("a", "a-b"),
            ("é", "a"),
        ]
        for place in places:
            await store.put(Key(BUCKET, *place), saying("x"))
        await store.put(Key("thing", "a", "a"), saying("x"))
        await store.put(Key("thingsx", "a", "a"), saying("x"))
        page = await store.list(BUCKET)
        assert [row.key[1:] for row in page.rows] == sorted(places)
        assert page.revision == start + 10
        assert not page.more
        assert await store.count(BUCKET) == 8
        await store.close()

    async def test_a_namespace_is_listed_alone(self, open_store: OpenStore) -> None:
        store = await open_store()
        for namespace in ("", "a", "aa", "b"):
            await fill(store, 3, namespace=namespace)
        for namespace in ("", "a", "aa", "b"):
            page = await store.list(BUCKET, namespace)
            assert [row.key for row in page.rows] == [Key(BUCKET, namespace, f"00{n}") for n in range(3)]
            assert await store.count(BUCKET, namespace) == 3
        assert (await store.list(BUCKET, "c")).rows == []
        await store.close()

    @pytest.mark.parametrize("limit", [1, 3, 7, 8, 100])
    async def test_pages_together_are_the_list(self, open_store: OpenStore, limit: int) -> None:
        store = await open_store()
        start = store.revision
        await fill(store, 3, namespace="a")
        await fill(store, 4, namespace="b")
        whole = (await store.list(BUCKET)).rows
        pages = await all_pages(store, limit=limit)
        assert [row for page in pages for row in page.rows] == whole
        assert [len(page.rows) for page in pages[:-1]] == [limit] * (len(pages) - 1)
        assert all(page.more for page in pages[:-1])
        assert all(page.revision == start + 7 for page in pages)
        await store.close()

    async def test_a_page_may_go_on_after_a_key_of_another_namespace(self, open_store: OpenStore) -> None:
        store = await open_store()
        await fill(store, 3, namespace="b")
        assert len((await store.list(BUCKET, "b", after=("a", "zzz"))).rows) == 3
        assert len((await store.list(BUCKET, "b", after=("b", "000"))).rows) == 2
        assert (await store.list(BUCKET, "b", after=("c", ""))).rows == []
        await store.close()

    async def test_remaining_is_right_where_it_is_told(self, open_store: OpenStore) -> None:
        store = await open_store()
        await fill(store, 10)
        shown = 0
        pages = await all_pages(store, limit=4, counted=True)
        assert pages[0].remaining == 6
        for page in pages:
            shown += len(page.rows)
            assert page.remaining is None or page.remaining == 10 - shown
        await store.close()

    @pytest.mark.parametrize("limit", [1, 4, 100])
    @pytest.mark.parametrize("meta_only", [False, True])
    async def test_rows_are_chosen_by_their_metadata(
        self, open_store: OpenStore, limit: int, meta_only: bool
    ) -> None:
        store = await open_store()
        await fill(store, 12)
        whole = (await store.list(BUCKET, meta_only=meta_only)).rows
        seen: list[str] = []

        def keep(row: Row) -> bool:
            seen.append(row.key.name)
            return int(row.key.name) % 3 == 1 and int(row.meta) == row.revision

        pages = await all_pages(store, limit=limit, meta_only=meta_only, keep=keep)
        assert [row for page in pages for row in page.rows] == whole[1::3]
        assert all(len(page.rows) <= limit for page in pages)
        assert set(seen) == {row.key.name for row in whole}
        assert (await store.list(BUCKET, keep=lambda row: False)).rows == []
        await store.close()

    async def test_rows_are_chosen_as_they_were_at_the_revision(self, open_store: OpenStore) -> None:
        store = await open_store()
        rows = await fill(store, 6)
        revision = max(row.revision for row in rows)

        def keep(row: Row) -> bool:
            return int(row.meta) <= revision

        for name in ("000", "003", "004"):
            await store.put(Key(BUCKET, "ns", name), saying("new"))
        await store.delete(Key(BUCKET, "ns", "001"))
        await store.put(Key(BUCKET, "ns", "999"), saying("new"))
        page = await store.list(BUCKET, limit=2, keep=keep, revision=revision)
        found = list(page.rows)
        while page.more:
            page = await store.list(BUCKET, limit=2, keep=keep, revision=revision, after=page.last)
            found += page.rows
        assert found == rows
        now = await store.list(BUCKET, keep=keep)
        assert [row.key.name for row in now.rows] == ["002", "005"]
        await store.close()

    async def test_remaining_counts_the_rows_of_the_revision(self, open_store: OpenStore) -> None:
        store = await open_store()
        await fill(store, 6)
        page = await store.list(BUCKET, limit=2)
        await store.put(Key(BUCKET, "ns", "zzz"), lambda revision: (b"", b""))
        await store.delete(Key(BUCKET, "ns", "000"))
        await store.delete(Key(BUCKET, "ns", "004"))
        after = (page.rows[-1].key.namespace, page.rows[-1].key.name)
        then = await store.list(BUCKET, limit=2, after=after, revision=page.revision, counted=True)
        now = await store.list(BUCKET, limit=1, after=after, counted=True)
        assert [row.key.name for row in then.rows] == ["002", "003"]
        assert then.remaining == 2
        assert now.remaining == 3
        first = await store.list(BUCKET, "ns", limit=1, revision=page.revision, counted=True)
        assert (first.rows[0].key.name, first.remaining) == ("000", 5)
        await store.close()

    async def test_remaining_is_told_while_others_write(self, open_store: OpenStore) -> None:
        store = await open_store()
        await fill(store, 6)
        writes = asyncio.gather(
            fill(store, 3, namespace="other"),
            store.delete(Key(BUCKET, "ns", "001")),
            store.delete(Key(BUCKET, "ns", "005")),
        )
        while not writes.done():
            page = await store.list(BUCKET, "ns", limit=2, counted=True)
            whole = await store.list(BUCKET, "ns", revision=page.revision)
            assert page.remaining == len(whole.rows) - 2
            await asyncio.sleep(0)
        await writes
        await store.close()

    async def test_a_page_has_more_where_rows_follow_that_are_not_wanted(self, open_store: OpenStore) -> None:
        store = await open_store()
        revision = max(row.revision for row in await fill(store, 4))

        def keep(row: Row) -> bool:
            return row.key.name in ("001", "003")

        async def ends(limit: int, revision: int | None = None) -> tuple[bool, str]:
            page = await store.list(BUCKET, limit=limit, keep=keep, revision=revision)
            assert page.last is not None
            return page.more, page.last[1]

        assert [await ends(limit) for limit in (1, 2, 3)] == [(True, "001"), (False, "003"), (False, "003")]
        await store.delete(Key(BUCKET, "ns", "003"))
        await store.put(Key(BUCKET, "ns", "002"), saying("new"))
        assert [await ends(limit) for limit in (1, 2)] == [(True, "001"), (False, "002")]
        await store.delete(Key(BUCKET, "ns", "002"))
        assert await ends(1) == (False, "001")
        # Then something lay there that is gone.
        assert [await ends(limit, revision) for limit in (1, 2)] == [(True, "001"), (False, "003")]
        await store.close()

    async def test_a_page_ends_when_it_holds_enough_bytes(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        for number in range(10):
            await store.put(Key(BUCKET, "", str(number)), lambda revision: (b"", b"x" * 1000))
        page = await store.list(BUCKET, max_bytes=2500)
        assert (len(page.rows), page.more) == (3, True)
        page = await store.list(BUCKET, max_bytes=1, after=("", "8"))
        assert (len(page.rows), page.more) == (1, False)
        await store.delete(Key(BUCKET, "", "3"))
        page = await store.list(BUCKET, max_bytes=2500, after=("", "2"), revision=start + 10)
        assert page.rows[0].key.name == "3"
        assert page.more
        await store.close()

    async def test_a_list_goes_on_as_it_was(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        await fill(store, 20)
        whole = (await store.list(BUCKET)).rows
        seen, page = [], await store.list(BUCKET, limit=3)
        revision = page.revision
        for turn in range(20):
            seen += page.rows
            # Before, at and after the place where the list stands: changed, deleted, created, come again.
            await store.put(Key(BUCKET, "ns", f"{turn:03}"), saying("new"))
            if turn % 2:
                await store.delete(Key(BUCKET, "ns", f"{turn:03}"))
            await store.delete(Key(BUCKET, "ns", f"{19 - turn:03}")) if turn < 5 else None
            await store.put(Key(BUCKET, "ns", f"{turn:03}x"), saying("more"))
            if not page.more:
                break
            after = (seen[-1].key.namespace, seen[-1].key.name)
            page = await store.list(BUCKET, limit=3, after=after, revision=revision)
            assert page.revision == revision
        assert seen == whole
        assert (await store.list(BUCKET, revision=revision)).rows == whole
        assert (await store.list(BUCKET, "ns", revision=start)).rows == []
        await store.close()

    async def test_a_list_of_a_revision_that_is_too_old_is_refused(self, open_store: OpenStore) -> None:
        store = await open_store(window_bytes=10_000)
        start = store.revision
        for _ in range(40):
            await store.put(A, lambda revision: (b"", b"x" * 1000))
        await self.grow_old(store, start + 20)
        with pytest.raises(Compacted) as refused:
            await store.list(BUCKET, revision=start + 1)
        oldest = refused.value.oldest
        assert start + 1 < oldest < start + 40
        assert (await store.list(BUCKET, revision=oldest)).rows[0].revision == oldest
        with pytest.raises(Compacted):
            await store.list(BUCKET, revision=oldest - 1)
        await store.close()

    async def test_a_list_of_the_future_is_refused(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.put(A, saying("x"))
        with pytest.raises(FutureRevision):
            await store.list(BUCKET, revision=store.revision + 1)
        await store.close()

    async def test_metadata_is_listed_without_bodies(self, open_store: OpenStore) -> None:
        store = await open_store()
        await fill(store, 3)
        revision = store.revision
        await store.put(Key(BUCKET, "ns", "001"), saying("new"))
        for page in (
            await store.list(BUCKET, meta_only=True),
            await store.list(BUCKET, meta_only=True, revision=revision),
        ):
            assert [row.body for row in page.rows] == [b"", b"", b""]
            assert [int(row.meta) for row in page.rows] == [row.revision for row in page.rows]
        await store.close()


class WatchingContract:
    """`watch`: each event exactly once, in order."""

    async def test_events_say_what_changed_and_what_was_there(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        one = await store.put(A, saying("one"))
        two = await store.put(A, saying("two"))
        gone = await store.delete(A, saying("bye"))
        assert await events_of(store, after=start) == [
            Event(start + 1, one, None),
            Event(start + 2, two, one),
            Event(start + 3, gone, two, deleted=True),
        ]
        assert gone == row_saying(A, start + 3, "bye")
        await store.close()

    async def test_the_past_is_replayed_and_the_present_follows(self, open_store: OpenStore) -> None:
        store = await open_store()
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
        await store.close()

    async def test_watches_begun_at_any_moment_miss_and_repeat_nothing(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        watches = []
        writes = [asyncio.ensure_future(store.put(Key(BUCKET, "", str(n)), saying("x"))) for n in range(200)]
        while not all(write.done() for write in writes):
            watches.append((store.revision, store.watch(BUCKET, after=store.revision)))
            await asyncio.sleep(0)
        for after, watch in watches:
            got: list[int] = []
            while len(got) < start + 200 - after:
                got += [event.revision for event in await watch.next(timeout_s=1) or ()]
            assert got == list(range(after + 1, start + 201))
        await store.close()

    async def test_a_watch_hears_only_of_its_bucket_and_namespace(self, open_store: OpenStore) -> None:
        store = await open_store()
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
        await store.close()

    async def test_the_position_moves_on_over_what_does_not_concern_the_watch(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
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
        await store.close()

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

    async def test_a_watch_from_the_future_is_refused(self, open_store: OpenStore) -> None:
        store = await open_store()
        with pytest.raises(FutureRevision):
            store.watch(BUCKET, after=store.revision + 1)
        await store.close()

    async def test_a_watcher_that_takes_nothing_is_cut_off(self, open_store: OpenStore) -> None:
        store = await open_store()
        slow, quick = store.watch(BUCKET, after=store.revision), store.watch(BUCKET, after=store.revision)
        for _ in range(64):
            await store.put(A, lambda revision: (b"", b"x" * (1 << 20)))
            assert await quick.next()
        with pytest.raises(SlowWatcher):
            [batch async for batch in slow]
        await store.close()

    async def test_writers_go_on_before_the_watchers_that_are_woken(self, open_store: OpenStore) -> None:
        store = await open_store()
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
        await store.close()

    async def test_a_lone_write_is_answered_when_takers_have_it(self, open_store: OpenStore) -> None:
        store = await open_store()
        watch = store.watch(BUCKET, after=store.revision)
        taken: list[int] = []

        def take(batch: list[Event]) -> bool:
            taken.extend(event.revision for event in batch)
            return True

        watch.hand_to(take)
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        row = await store.put(A, saying("x"))
        assert taken == [row.revision]
        row = await store.put(A, saying("y"))
        await store.close()
        assert taken[1:] == [row.revision]
        assert await waiting is None

    async def test_closing_a_watch_ends_it(self, open_store: OpenStore) -> None:
        store = await open_store()
        watch = store.watch(BUCKET, after=store.revision)
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        watch.close()
        watch.close()
        assert await waiting is None
        await store.put(A, saying("x"))
        assert await watch.next() is None
        assert [batch async for batch in watch] == []
        await store.close()

    async def test_closing_the_store_ends_watches_after_the_last_event(self, open_store: OpenStore) -> None:
        store = await open_store()
        start = store.revision
        watch = store.watch(BUCKET, after=start)
        await store.put(A, saying("x"))
        await store.close()
        assert [[event.revision for event in batch] async for batch in watch] == [[start + 1]]
        assert await watch.next() is None

    async def test_a_wait_for_events_that_is_cancelled_loses_none(self, open_store: OpenStore) -> None:
        store = await open_store()
        watch = store.watch(BUCKET, after=store.revision)
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await store.put(A, saying("x"))
        assert len(await watch.next(timeout_s=1) or ()) == 1
        await store.close()


class StoreContract(WritingContract, ConcurrencyContract, ListingContract, WatchingContract):
    """Everything; subclass it and give it the fixture `open_store`."""


_KEYS = st.builds(
    Key, st.sampled_from(["things", "other"]), st.sampled_from(["", "x"]), st.sampled_from("abcd")
)
_EXPECT = st.sampled_from(["anything", "nothing", "this", "stale"])


def model_machine(open_store: OpenStore, *, in_order: bool = True) -> type[RuleBasedStateMachine]:
    """A state machine that does the same to a store and to dictionaries, and compares what they say.

    `in_order`: writes that are under way at the same time get their revisions in the order of the calls,
    those of different keys too.
    """

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.runner = asyncio.Runner()
            self.store: Store = self.runner.run(open_store())
            self.rows: dict[Key, Row] = {}
            self.start = self.store.revision
            self.past: list[dict[Key, Row]] = [{}]
            self.watches: dict[str, Watch] = {
                bucket: self.store.watch(bucket, after=self.start) for bucket in ("things", "other")
            }
            self.heard: dict[Key, Row] = {}

        def expected(self, key: Key, expect: str) -> int | None:
            current = self.rows[key].revision if key in self.rows else self.start or 1
            return {"anything": None, "nothing": 0, "this": current, "stale": current + 1}[expect]

        def predict(self, key: Key, expect: int | None, *, delete: bool) -> type[StoreError] | None:
            if (current := self.rows.get(key)) is None:
                return Missing if delete or expect else None
            if expect == 0 and not delete:
                return Exists
            return None if expect in (None, current.revision) else Changed

        def predict_and_apply(self, key: Key, text: str, expect: int | None, *, delete: bool) -> Any:
            if error := self.predict(key, expect, delete=delete):
                return error
            row = row_saying(key, self.start + len(self.past), text)
            self.rows.pop(key, None)
            if not delete:
                self.rows[key] = row
            self.past.append(dict(self.rows))
            return row

        @rule(
            calls=st.lists(
                st.tuples(_KEYS, st.text("xyz", max_size=3), _EXPECT, st.booleans()), min_size=1, max_size=6
            )
        )
        def write_at_the_same_time(self, calls: list[tuple[Key, str, str, bool]]) -> None:
            async def run() -> list[object]:
                if in_order:
                    return await asyncio.gather(*works, return_exceptions=True)
                return [(await asyncio.gather(work, return_exceptions=True))[0] for work in works]

            works, wanted = [], []
            for key, text, how, delete in calls:
                expect = self.expected(key, how)
                wanted.append(self.predict_and_apply(key, text, expect, delete=delete))
                write = self.store.delete if delete else self.store.put
                works.append(write(key, saying(text), expect=expect))
            results = self.runner.run(run())
            assert [r if isinstance(r, Row) else type(r) for r in results] == wanted

        @rule(
            bucket=st.sampled_from(["things", "other"]),
            namespace=st.sampled_from([None, "", "x"]),
            back=st.integers(0, 10),
            limit=st.integers(1, 5),
        )
        def list_as_it_was(self, bucket: str, namespace: str | None, back: int, limit: int) -> None:
            revision = max(self.start, self.store.revision - back)
            wanted = sorted(
                row
                for key, row in self.past[revision - self.start].items()
                if key.bucket == bucket and namespace in (None, key.namespace)
            )
            rows: list[Row] = []
            while True:
                after = (rows[-1].key.namespace, rows[-1].key.name) if rows else None
                page = self.runner.run(
                    self.store.list(bucket, namespace, limit=limit, after=after, revision=revision)
                )
                rows += page.rows
                if not page.more:
                    break
            assert rows == wanted

        @rule(bucket=st.sampled_from(["things", "other"]))
        @precondition(lambda self: self.store.revision > self.start)
        def hear_what_happened(self, bucket: str) -> None:
            watch = self.watches[bucket]
            while watch.position < self.store.revision:
                for event in self.runner.run(watch.next(timeout_s=0.5)) or ():
                    assert self.heard.get(event.row.key) == event.previous
                    self.heard.pop(event.row.key, None)
                    if not event.deleted:
                        self.heard[event.row.key] = event.row
            assert [row for key, row in sorted(self.heard.items()) if key.bucket == bucket] == [
                row for key, row in sorted(self.rows.items()) if key.bucket == bucket
            ]

        @invariant()
        def rows_are_as_in_the_model(self) -> None:
            assert self.store.revision == self.start + len(self.past) - 1
            for key, row in self.rows.items():
                assert self.runner.run(self.store.get(key)) == row
                assert self.store.at_hand(key) in (row, None)
            counts = [self.runner.run(self.store.count(bucket)) for bucket in ("things", "other")]
            assert sum(counts) == len(self.rows)

        def teardown(self) -> None:
            self.runner.run(self.store.close())
            self.runner.close()

    return Machine
