"""Updates and deletions that begin with a recent row: where another server has written since, the current row
decides. The store is one that lags behind as much as a test wants."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from certwright.kube.store.contract import Encode, Event, Follower, Key, Row, StoreError
from certwright.kube.store.memory import MemoryStore
from kube.apiserver.callers import CONFIG_MAPS, JSON_PATCH, MERGE, Api, Json, StartApi

PLACE = Key("configmaps", "default", "a")
PATH = f"{CONFIG_MAPS}/a"
KEPT = {"metadata": {"finalizers": ["example.com/keep"]}}


class LaggingStore(MemoryStore):
    """A store that others write to: `recent` returns the row that the test has put there."""

    def __init__(self) -> None:
        super().__init__()
        self.recents: dict[Key, Row] = {}
        self.reads = 0
        self._followers: list[Follower] = []

    def follow(self, follower: Follower) -> None:
        """See `contract.Shared.follow`."""
        self._followers.append(follower)

    async def wait_lost(self) -> StoreError:
        """See `contract.Shared.wait_lost`."""
        never: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        return await never

    def recent(self, key: Key) -> Row | None:
        """See `contract.Store.recent`."""
        return self.recents.get(key)

    async def latest(self, key: Key) -> Row | None:
        """Count the reads of the row."""
        self.reads += key == PLACE
        return await super().latest(key)

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        """Write, and notify the followers."""
        previous = self._find(key)
        row = await super().put(key, encode, expect=expect)
        self._notify(Event(row.revision, row, previous))
        return row

    async def delete(self, key: Key, encode: Encode | None = None, *, expect: int | None = None) -> Row:
        """Delete, and notify the followers."""
        previous = self._find(key)
        row = await super().delete(key, encode, expect=expect)
        self._notify(Event(row.revision, row, previous, deleted=True))
        return row

    def _notify(self, event: Event) -> None:
        for follower in self._followers:
            follower([event])


@pytest.fixture
def store() -> LaggingStore:
    return LaggingStore()


@pytest.fixture
async def api(start_api: StartApi, store: LaggingStore) -> Api:
    started: Api = await start_api(store=store)
    await started.settle()
    return started


async def made(api: Api, **data: str) -> Json:
    body = {"metadata": {"name": "a"}, "data": data}
    return await api.ok("POST", CONFIG_MAPS, body)


async def merge(api: Api, patch: Any) -> Json:
    return await api.merge(PATH, patch)


async def lag(store: LaggingStore) -> None:
    """From now on the row of this moment counts as recent."""
    row = await MemoryStore.latest(store, PLACE)
    assert row is not None
    store.recents[PLACE] = row
    store.reads = 0


async def test_an_update_and_a_deletion_of_the_recent_row_read_nothing(api: Api, store: LaggingStore) -> None:
    await made(api)
    await lag(store)
    await merge(api, {"data": {"one": "1"}})
    await lag(store)
    await api.ok("DELETE", PATH)
    assert store.reads == 0


async def test_an_update_keeps_what_another_server_has_written(api: Api, store: LaggingStore) -> None:
    await made(api)
    await lag(store)
    await merge(api, {"data": {"theirs": "2"}})
    assert (await merge(api, {"data": {"ours": "1"}}))["data"] == {"ours": "1", "theirs": "2"}


async def test_a_pinned_update_is_decided_by_the_current_revision(api: Api, store: LaggingStore) -> None:
    old = await made(api)
    await lag(store)
    current = await merge(api, {"data": {"theirs": "2"}})
    assert (await api.call("PUT", PATH, {**old, "data": {"ours": "1"}})).status == 409
    put = await api.ok("PUT", PATH, {**current, "data": {"ours": "1"}})
    assert put["data"] == {"ours": "1"}


async def test_a_test_in_a_patch_is_decided_by_the_current_row(api: Api, store: LaggingStore) -> None:
    await made(api, n="1")
    await lag(store)
    await merge(api, {"data": {"n": "2"}})

    async def swap(old: str, new: str) -> int:
        test = [
            {"op": "test", "path": "/data/n", "value": old},
            {"op": "add", "path": "/data/n", "value": new},
        ]
        return (await api.call("PATCH", PATH, test, content_type=JSON_PATCH)).status

    assert await swap("1", "3") == 422
    assert await swap("2", "3") == 200
    assert (await api.ok("GET", PATH))["data"] == {"n": "3"}


async def test_a_change_that_the_recent_row_has_already_is_written(api: Api, store: LaggingStore) -> None:
    await made(api, n="1")
    await lag(store)
    await merge(api, {"data": {"n": "2"}})
    assert (await merge(api, {"data": {"n": "1"}}))["data"] == {"n": "1"}
    assert (await api.ok("GET", PATH))["data"] == {"n": "1"}


async def test_a_row_that_another_server_has_deleted_is_not_found(api: Api, store: LaggingStore) -> None:
    await made(api)
    await lag(store)
    recent = store.recents.pop(PLACE)
    await api.ok("DELETE", PATH)
    store.recents[PLACE] = recent
    assert (await api.call("PATCH", PATH, {"data": {"n": "1"}}, content_type=MERGE)).status == 404
    assert (await api.call("DELETE", PATH)).status == 404


async def test_a_finalizer_of_another_server_keeps_the_object(api: Api, store: LaggingStore) -> None:
    await made(api)
    await lag(store)
    await merge(api, KEPT)
    assert "deletionTimestamp" in (await api.ok("DELETE", PATH))["metadata"]
    assert (await api.ok("GET", PATH))["metadata"]["finalizers"] == ["example.com/keep"]


async def test_a_deletion_is_not_skipped_because_the_old_object_was_being_deleted(
    api: Api, store: LaggingStore
) -> None:
    await made(api)
    await merge(api, KEPT)
    await api.ok("DELETE", PATH)
    await lag(store)
    recent = store.recents.pop(PLACE)
    await merge(api, {"metadata": {"finalizers": None}})
    await made(api)
    store.recents[PLACE] = recent
    await api.ok("DELETE", PATH)
    assert (await api.call("GET", PATH)).status == 404


async def test_preconditions_of_a_deletion_are_decided_by_the_current_row(
    api: Api, store: LaggingStore
) -> None:
    old = await made(api)
    await lag(store)
    current = await merge(api, {"data": {"theirs": "2"}})

    async def delete(revision: str) -> int:
        return (await api.call("DELETE", PATH, {"preconditions": {"resourceVersion": revision}})).status

    assert await delete(old["metadata"]["resourceVersion"]) == 409
    assert await delete(current["metadata"]["resourceVersion"]) == 200


async def test_a_dry_run_shows_the_current_row(api: Api, store: LaggingStore) -> None:
    await made(api)
    await lag(store)
    await merge(api, {"data": {"theirs": "2"}})
    patched = await api.merge(f"{PATH}?dryRun=All", {"data": {"ours": "1"}})
    assert patched["data"] == {"ours": "1", "theirs": "2"}
    recent = store.recents.pop(PLACE)
    await merge(api, KEPT)
    store.recents[PLACE] = recent
    assert "deletionTimestamp" in (await api.ok("DELETE", f"{PATH}?dryRun=All"))["metadata"]
