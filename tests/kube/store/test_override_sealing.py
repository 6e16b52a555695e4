"""Sealed bodies on another etcd: the data keys change there, too, and a backup is of one moment."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from certwright.kube.store.contract import DamagedRow, Key
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.dump import dump_etcd
from certwright.kube.store.etcd.messages import RANGE, RangeRequest
from certwright.kube.store.etcd.store import EtcdStore
from certwright.kube.store.keyring import KEY_BYTES
from kube.store.overriding import Pair, access_to, sweep, turn
from kube.store.test_backup import back_up_under_load, collect
from kube.store.test_etcd_sealing import META, PEM, files_that_show, settle, write
from support.etcd import Etcd, running_etcd
from support.sealed import SECRETS, Keys, seal_with

_numbers = itertools.count()


@pytest.fixture
def keys() -> Keys:
    """One wrapping key."""
    return Keys(os.urandom(KEY_BYTES))


@pytest.fixture
def pair(etcd: Etcd, other_etcd: Etcd) -> Pair:
    """A store whose Secrets are on the other etcd."""
    return Pair(etcd, other_etcd, f"/sealed/{next(_numbers)}", SECRETS)


async def heads(pair: Pair) -> set[bytes]:
    """How the bodies begin: with the number of their data key."""
    client, begin = EtcdClient(access_to(pair.other)), pair.layout.body
    pairs = (await client.call(RANGE, RangeRequest(key=begin, range_end=begin[:-1] + b"0"))).kvs
    await client.close()
    return {kv.value[:12] for kv in pairs}


async def check_rows(store: EtcdStore, count: int) -> None:
    """All are there, and can be read."""
    rows = (await store.list(SECRETS)).rows
    assert len(rows) == count
    assert {(row.meta, row.body) for row in rows} == {(META, PEM)}
    assert not len(store.damage)


async def test_the_other_etcds_files_show_nothing(tmp_path: Path, etcd: Etcd, keys: Keys) -> None:
    with running_etcd(tmp_path) as other:
        async with Pair(etcd, other, "/shown", SECRETS).opened(seal=seal_with(keys)) as store:
            await write(store, "ns", 20)
            assert files_that_show(tmp_path) == set()


async def test_a_rotation_while_servers_write_and_sweep_loses_nothing(pair: Pair, keys: Keys) -> None:
    async with pair.opened(seal=seal_with(keys)) as one, pair.opened(seal=seal_with(keys)) as two:
        await write(one, "before", 100)
        old = await heads(pair)
        writing = asyncio.gather(write(two, "two", 150), write(one, "one", 150))
        assert one.rotation is not None
        for _ in range(3):
            await one.rotation.rotate()
            await settle(one)
            await turn(two)
        await writing
        for store in (one, two):
            await check_rows(store, 320)
        await sweep(one)
        await sweep(one)
        assert len(await pair.bodies()) == 320
        (head,) = await heads(pair)
        assert head not in old
    async with pair.opened(seal=seal_with(keys)) as fresh:
        await check_rows(fresh, 320)


async def test_rows_of_before_are_sealed_in_the_background(pair: Pair, keys: Keys) -> None:
    async with pair.opened() as old:
        await write(old, "ns", 100)
        await sweep(old)
    async with pair.opened(seal=seal_with(keys)) as store:
        await settle(store)
        await check_rows(store, 80)
        (head,) = await heads(pair)
        assert head.startswith(b"\0sealed1")


async def test_a_rotation_that_was_broken_off_goes_on_at_the_next_start(pair: Pair, keys: Keys) -> None:
    async with pair.opened(seal=seal_with(keys)) as store:
        await write(store, "ns", 100)
        assert store.rotation is not None
        await store.rotation.rotate()
    async with pair.opened(seal=seal_with(keys)) as store:
        await settle(store)
        await check_rows(store, 80)
        await sweep(store)
        assert len(await heads(pair)) == 1


async def test_a_body_that_is_missing_does_not_let_old_keys_be_dropped(pair: Pair, keys: Keys) -> None:
    async with pair.opened(seal=seal_with(keys)) as store:
        await write(store, "ns", 4)
        await pair.wipe(pair.other, pair.layout.body + (await pair.bodies())[0])
        assert store.rotation is not None
        await store.rotation.rotate()
        await store.rotation.finished()
        assert not store.rotation.settled
        assert store.rotation.unreadable == 1


async def test_a_server_that_lags_behind_a_rotation_reads_old_bodies(pair: Pair, keys: Keys) -> None:
    async with pair.opened(seal=seal_with(keys)) as one:
        await write(one, "ns", 20)
        page = await one.list(SECRETS, limit=5)
        async with pair.opened(seal=seal_with(keys)) as other:
            start = other.revision
            other.watch(SECRETS, after=start)
            assert one.rotation is not None
            await one.rotation.rotate()
            await settle(one)
            await write(one, "ns", 4)
            rest = await other.list(SECRETS, after=page.last, revision=page.revision)
            assert [(row.meta, row.body) for row in rest.rows] == 11 * [(META, PEM)]
            await check_rows(other, 16)


async def test_a_dump_under_load_is_of_one_moment(tmp_path: Path, keys: Keys, pair: Pair) -> None:
    access, seal = access_to(pair.main), seal_with(keys)
    async with pair.opened(seal=seal_with(keys)) as store:
        dump = dump_etcd(access, pair.prefix, seal, None, pair.overrides())
        await back_up_under_load(store, dump, seal, tmp_path / "file")


async def test_a_dump_during_a_rotation_opens_with_its_own_ring(
    tmp_path: Path, keys: Keys, pair: Pair
) -> None:
    async with pair.opened(seal=seal_with(keys)) as store:
        await write(store, "ns", 100)
        seal = seal_with(keys)
        async with dump_etcd(access_to(pair.main), pair.prefix, seal, None, pair.overrides()) as dump:
            assert store.rotation is not None
            await store.rotation.rotate()
            await settle(store)
            backup = await collect(dump, seal, tmp_path / "file")
        assert not len(dump.damage)
    opener = seal_with(keys)
    assert backup.header.ring is not None
    opener.adopt(backup.header.ring)
    rows = [opener.open_row(row) for row in backup.rows()]
    assert [(row.meta, row.body) for row in rows] == 80 * [(META, PEM)]


async def test_a_body_of_another_row_does_not_open(pair: Pair, keys: Keys) -> None:
    async with pair.opened(seal=seal_with(keys)) as store:
        for name in "ab":
            await store.put(Key(SECRETS, "ns", name), lambda revision: (META, PEM))
        client = store._overrides.clients[0]
        one, other = [pair.layout.body + key for key in await pair.bodies()]
        (stored,) = (await client.call(RANGE, RangeRequest(key=one))).kvs
        await pair.put(other, stored.value)
    async with pair.opened(seal=seal_with(keys)) as store:
        with pytest.raises(DamagedRow, match="does not decrypt"):
            await store.get(Key(SECRETS, "ns", "b"))
