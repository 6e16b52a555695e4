"""What every store must do when it is read: see `check_store`."""

from __future__ import annotations

import asyncio

import pytest

from certwright.kube.store.contract import Compacted, FutureRevision, Key, Row, Store
from conformance.store_words import BUCKET, A, OpenStore, all_pages, fill, saying


class ListingContract:
    """`list` and `count`."""

    async def grow_old(self, store: Store, revision: int) -> None:
        """Have the store forget what was before a revision, where it does not do that by itself."""

    async def test_rows_come_in_order_of_namespace_and_name(self, store: Store) -> None:
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

    async def test_a_namespace_is_listed_alone(self, store: Store) -> None:
        for namespace in ("", "a", "aa", "b"):
            await fill(store, 3, namespace=namespace)
        for namespace in ("", "a", "aa", "b"):
            page = await store.list(BUCKET, namespace)
            assert [row.key for row in page.rows] == [Key(BUCKET, namespace, f"00{n}") for n in range(3)]
            assert await store.count(BUCKET, namespace) == 3
        assert (await store.list(BUCKET, "c")).rows == []

    @pytest.mark.parametrize("limit", [1, 3, 7, 8, 100])
    async def test_pages_together_are_the_list(self, store: Store, limit: int) -> None:
        start = store.revision
        await fill(store, 3, namespace="a")
        await fill(store, 4, namespace="b")
        every_row = (await store.list(BUCKET)).rows
        pages = await all_pages(store, limit=limit)
        assert [row for page in pages for row in page.rows] == every_row
        assert [len(page.rows) for page in pages[:-1]] == [limit] * (len(pages) - 1)
        assert all(page.more for page in pages[:-1])
        assert all(page.revision == start + 7 for page in pages)

    async def test_a_page_may_go_on_after_a_key_of_another_namespace(self, store: Store) -> None:
        await fill(store, 3, namespace="b")
        assert len((await store.list(BUCKET, "b", after=("a", "zzz"))).rows) == 3
        assert len((await store.list(BUCKET, "b", after=("b", "000"))).rows) == 2
        assert (await store.list(BUCKET, "b", after=("c", ""))).rows == []

    async def test_remaining_is_right_where_it_is_told(self, store: Store) -> None:
        await fill(store, 10)
        shown = 0
        pages = await all_pages(store, limit=4, counted=True)
        assert pages[0].remaining == 6
        for page in pages:
            shown += len(page.rows)
            assert page.remaining is None or page.remaining == 10 - shown

    @pytest.mark.parametrize("limit", [1, 4, 100])
    @pytest.mark.parametrize("meta_only", [False, True])
    async def test_rows_are_chosen_by_their_metadata(self, store: Store, limit: int, meta_only: bool) -> None:
        await fill(store, 12)
        every_row = (await store.list(BUCKET, meta_only=meta_only)).rows
        seen: list[str] = []

        def keep(row: Row) -> bool:
            seen.append(row.key.name)
            return int(row.key.name) % 3 == 1 and int(row.meta) == row.revision

        pages = await all_pages(store, limit=limit, meta_only=meta_only, keep=keep)
        assert [row for page in pages for row in page.rows] == every_row[1::3]
        assert all(len(page.rows) <= limit for page in pages)
        assert set(seen) == {row.key.name for row in every_row}
        assert (await store.list(BUCKET, keep=lambda row: False)).rows == []

    async def test_rows_are_chosen_as_they_were_at_the_revision(self, store: Store) -> None:
        rows = await fill(store, 6)
        revision = max(row.revision for row in rows)

        def keep(row: Row) -> bool:
            return int(row.meta) <= revision

        for name in ("000", "003", "004"):
            await store.put(Key(BUCKET, "ns", name), saying("new"))
        await store.delete(Key(BUCKET, "ns", "001"))
        await store.put(Key(BUCKET, "ns", "999"), saying("new"))
        page = await store.list(BUCKET, limit=2, keep=keep, revision=revision)
        collected = list(page.rows)
        while page.more:
            page = await store.list(BUCKET, limit=2, keep=keep, revision=revision, after=page.last)
            collected += page.rows
        assert collected == rows
        now = await store.list(BUCKET, keep=keep)
        assert [row.key.name for row in now.rows] == ["002", "005"]

    async def test_remaining_counts_the_rows_of_the_revision(self, store: Store) -> None:
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

    async def test_remaining_is_told_while_others_write(self, store: Store) -> None:
        await fill(store, 6)
        writes = asyncio.gather(
            fill(store, 3, namespace="other"),
            store.delete(Key(BUCKET, "ns", "001")),
            store.delete(Key(BUCKET, "ns", "005")),
        )
        while not writes.done():
            page = await store.list(BUCKET, "ns", limit=2, counted=True)
            full_list = await store.list(BUCKET, "ns", revision=page.revision)
            assert page.remaining == len(full_list.rows) - 2
            await asyncio.sleep(0)
        await writes

    async def test_a_page_has_more_where_rows_follow_that_are_not_wanted(self, store: Store) -> None:
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

    async def test_a_page_ends_when_it_holds_enough_bytes(self, store: Store) -> None:
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

    async def test_a_page_of_chosen_rows_ends_when_it_holds_enough_bytes(self, store: Store) -> None:
        for number in range(10):
            await store.put(Key(BUCKET, "", str(number)), lambda revision: (b"", b"x" * 1000))
        first = await store.list(BUCKET, max_bytes=2500, keep=lambda row: row.key.name != "1")
        assert ([row.key.name for row in first.rows], first.more) == (["0", "2", "3"], True)
        await store.delete(Key(BUCKET, "", "5"))
        names, page = [row.key.name for row in first.rows], first
        while page.more:
            page = await store.list(
                BUCKET,
                max_bytes=1,
                keep=lambda row: row.key.name != "1",
                after=page.last,
                revision=first.revision,
            )
            assert len(page.rows) == 1
            names += [row.key.name for row in page.rows]
        assert names == ["0", *"23456789"]

    async def test_a_list_goes_on_as_it_was(self, store: Store) -> None:
        start = store.revision
        await fill(store, 20)
        every_row = (await store.list(BUCKET)).rows
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
        assert seen == every_row
        assert (await store.list(BUCKET, revision=revision)).rows == every_row
        assert (await store.list(BUCKET, "ns", revision=start)).rows == []

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

    async def test_a_list_of_the_future_is_refused(self, store: Store) -> None:
        await store.put(A, saying("x"))
        with pytest.raises(FutureRevision):
            await store.list(BUCKET, revision=store.revision + 1)

    async def test_metadata_is_listed_without_bodies(self, store: Store) -> None:
        await fill(store, 3)
        revision = store.revision
        await store.put(Key(BUCKET, "ns", "001"), saying("new"))
        for page in (
            await store.list(BUCKET, meta_only=True),
            await store.list(BUCKET, meta_only=True, revision=revision),
        ):
            assert [row.body for row in page.rows] == [b"", b"", b""]
            assert [int(row.meta) for row in page.rows] == [row.revision for row in page.rows]
