"""What every store must do when it is written to, by one or by many at the same time: see `check_store`."""

from __future__ import annotations

import asyncio

import pytest

from certwright.kube.store.contract import Changed, Exists, Key, Missing, Page, Row, Store, Unavailable
from conformance.store_words import (
    BUCKET,
    A,
    B,
    C,
    OpenStore,
    count_up,
    events_of,
    fill,
    holding,
    row_saying,
    said,
    saying,
)


class WritingContract:
    """`put` and `delete`, and what they are refused for."""

    async def test_a_new_store_is_empty(self, store: Store) -> None:
        start = store.revision
        assert await store.get(A) is None
        assert await store.list(BUCKET) == Page([], start)
        assert await store.count(BUCKET) == 0

    async def test_what_was_put_is_there_at_the_next_revision(self, store: Store) -> None:
        start = store.revision
        row = await store.put(A, saying("x"), expect=0)
        assert row == row_saying(A, start + 1, "x")
        assert await store.get(A) == row
        assert store.revision == start + 1

    async def test_every_write_takes_the_next_revision_across_buckets(self, store: Store) -> None:
        start = store.revision
        await store.put(A, saying("x"))
        await store.put(Key("others", "", "a"), saying("x"))
        deleted = await store.delete(A)
        assert deleted.revision == start + 3
        assert store.revision == start + 3

    async def test_equal_names_in_other_namespaces_and_buckets_are_other_rows(self, store: Store) -> None:
        keys = [Key(bucket, namespace, "n") for bucket in ("p", "q") for namespace in ("", "x")]
        for key in keys:
            await store.put(key, saying(str(key)), expect=0)
        for key in keys:
            row = await store.get(key)
            assert row is not None
            assert row.body.decode() == str(key)

    async def test_a_put_that_expects_nothing_replaces_what_is_there(self, store: Store) -> None:
        start = store.revision
        await store.put(A, saying("one"))
        row = await store.put(A, saying("two"))
        assert (row.revision, row.body) == (start + 2, b"two")
        assert await store.get(A) == row

    async def test_a_row_that_must_not_exist_but_does_is_handed_over(self, store: Store) -> None:
        start = store.revision
        first = await store.put(A, saying("one"), expect=0)
        with pytest.raises(Exists) as refused:
            await store.put(A, saying("two"), expect=0)
        assert refused.value.current == first
        assert store.revision == start + 1

    async def test_a_row_at_the_expected_revision_is_replaced(self, store: Store) -> None:
        first = await store.put(A, saying("one"))
        second = await store.put(A, saying("two"), expect=first.revision)
        assert second.revision == first.revision + 1

    async def test_a_row_at_another_revision_is_handed_over(self, store: Store) -> None:
        first = await store.put(A, saying("one"))
        second = await store.put(A, saying("two"))
        with pytest.raises(Changed) as refused:
            await store.put(A, saying("three"), expect=first.revision)
        assert refused.value.current == second
        with pytest.raises(Changed):
            await store.delete(A, expect=first.revision)
        assert await store.get(A) == second

    async def test_a_row_that_must_exist_but_does_not_is_missed(self, store: Store) -> None:
        start = store.revision
        with pytest.raises(Missing):
            await store.put(A, saying("x"), expect=start or 1)
        with pytest.raises(Missing):
            await store.delete(A)
        with pytest.raises(Missing):
            await store.delete(A, expect=start or 1)
        assert store.revision == start

    async def test_a_deleted_row_is_gone_and_may_come_again(self, store: Store) -> None:
        start = store.revision
        first = await store.put(A, saying("one"))
        assert await store.delete(A, expect=first.revision) == first._replace(revision=start + 2)
        assert await store.get(A) is None
        again = await store.put(A, saying("two"), expect=0)
        assert again.revision == start + 3

    async def test_a_deletion_can_leave_last_words(self, store: Store) -> None:
        start = store.revision
        await store.put(A, saying("one"))
        assert await store.delete(A, saying("farewell")) == row_saying(A, start + 2, "farewell")

    async def test_a_write_whose_encoding_fails_has_not_happened(self, store: Store) -> None:
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

    async def test_the_encoder_is_called_once_and_the_revision_is_where_it_has_put_it(
        self, store: Store
    ) -> None:
        calls: list[int] = []

        def encode(revision: int) -> tuple[bytes, bytes]:
            calls.append(revision)
            return b"at %d" % revision, b""

        row = await store.put(A, encode)
        assert len(calls) == 1
        assert row.meta == b"at %d" % row.revision

    async def test_bytes_of_every_kind_and_size_come_back(self, store: Store) -> None:
        contents = [b"", bytes(range(256)), b"x" * 20_000, b"\0" * 3_000_000]
        for content in contents:
            await store.put(A, holding(content))
            row = await store.get(A)
            assert row is not None
            assert (row.meta, row.body) == (content[:9_000], content)

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

    async def test_of_many_that_create_one_wins(self, store: Store) -> None:
        results = await asyncio.gather(
            *(store.put(A, saying(str(number)), expect=0) for number in range(50)), return_exceptions=True
        )
        won = [result for result in results if isinstance(result, Row)]
        assert len(won) == 1
        assert won[0] is results[0]
        assert all(isinstance(result, Exists) and result.current == won[0] for result in results[1:])

    async def test_of_many_that_replace_one_revision_one_wins(self, store: Store) -> None:
        first = await store.put(A, saying("first"))
        results = await asyncio.gather(
            *(store.put(A, saying(str(n)), expect=first.revision) for n in range(50)), return_exceptions=True
        )
        assert isinstance(results[0], Row)
        assert all(isinstance(result, Changed) for result in results[1:])

    async def test_conflicts_are_decided_in_the_order_of_the_calls(self, store: Store) -> None:
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

    async def test_a_refused_write_is_answered_after_the_one_it_lost_to(self, store: Store) -> None:
        winner = asyncio.ensure_future(store.put(A, saying("one"), expect=0))
        await asyncio.sleep(0)
        with pytest.raises(Exists) as refused:
            await store.put(A, saying("two"), expect=0)
        assert await store.get(A) == refused.value.current
        await winner

    async def test_what_is_at_hand_is_committed_and_not_deleted(self, store: Store) -> None:
        first = await store.put(A, saying("first"))
        assert store.recent(A) in (first, None)
        writing = asyncio.ensure_future(store.put(A, saying("second")))
        while not writing.done():
            assert store.recent(A) in (await store.get(A), None)
            await asyncio.sleep(0)
        assert store.recent(A) in (await writing, None)
        await store.delete(A)
        assert store.recent(A) is None
        assert store.recent(B) is None

    async def test_latest_counts_up_without_losing_one(self, store: Store) -> None:
        await store.put(A, saying("0"))

        await asyncio.gather(*(count_up(store, A) for _ in range(30)))
        row = await store.get(A)
        assert row is not None
        assert row.body == b"30"
        assert await store.latest(A) == row

    async def test_nothing_is_shown_before_it_is_committed(self, store: Store) -> None:
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

    async def test_a_cancelled_write_does_no_harm(self, store: Store) -> None:
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

    async def test_closing_finishes_what_is_under_way(self, open_store: OpenStore) -> None:
        store = await open_store()
        writes = [asyncio.ensure_future(store.put(Key(BUCKET, "", str(n)), saying("x"))) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert len({row.revision for row in await asyncio.gather(*writes)}) == 100
