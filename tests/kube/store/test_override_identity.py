"""Bodies are looked for where they are: other options, and an etcd without them, are refused."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from certwright.kube.store.contract import Damaged, DamagedRow, Key, Lost, Unavailable
from certwright.kube.store.dump import Dump
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.dump import dump_etcd
from certwright.kube.store.etcd.messages import RANGE, TXN, RangeRequest, TxnRequest, put_op
from certwright.kube.store.etcd.restore import refilling
from certwright.kube.store.etcd.rows import FORMAT, PLAIN_FORMAT
from certwright.kube.store.etcd.store import open_etcd
from conformance.store_words import BUCKET, A, B, saying
from kube.store.overriding import Pair, access_to, sweep
from support.etcd import Etcd, running_etcd
from support.sealed import Keys, seal_with

_numbers = itertools.count()
KEYS = Keys()


@pytest.fixture
def pair(etcd: Etcd, other_etcd: Etcd) -> Pair:
    """Two etcds, and a prefix for a new store."""
    return Pair(etcd, other_etcd, f"/identity/{next(_numbers)}", BUCKET, "more")


@pytest.fixture
def third(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd of the test's own."""
    with running_etcd(tmp_path) as server:
        yield server


async def check_refused(pair: Pair, words: str, overrides: Mapping[str, Access] | None = None) -> None:
    """Neither a server nor a backup accepts these options."""
    overrides = pair.overrides() if overrides is None else overrides
    with pytest.raises(Damaged, match=words):
        await pair.open(overrides=overrides)
    with pytest.raises(Damaged, match=words):
        await collect(pair, overrides)


async def collect(pair: Pair, overrides: Mapping[str, Access]) -> Dump:
    """A dump that is begun."""
    async with dump_etcd(access_to(pair.main), pair.prefix, seal_with(KEYS), None, overrides) as dump:
        return dump


async def write(pair: Pair) -> None:
    """A store of one row."""
    async with pair.opened() as store:
        await store.put(A, saying("x"))


async def test_other_options_than_those_of_the_store_are_refused(pair: Pair, third: Etcd) -> None:
    await write(pair)
    flag = f"'/more#http://{pair.other.member},/things#http://{pair.other.member}'"
    for overrides in (
        {},
        {BUCKET: access_to(pair.other)},
        pair.overrides() | {"third": access_to(pair.other)},
        pair.overrides() | {"more": access_to(third)},
    ):
        await check_refused(pair, f"start with --etcd-servers-overrides {flag}", overrides)
    await (await pair.open()).close()


async def test_a_store_without_overrides_is_not_started_with_them(pair: Pair) -> None:
    await (await pair.open(overrides={})).close()
    await check_refused(pair, "there: start without --etcd-servers-overrides more,things")


@pytest.mark.parametrize("marker", [PLAIN_FORMAT, FORMAT])
async def test_a_store_of_an_earlier_version_is_not_either(pair: Pair, marker: bytes) -> None:
    client = EtcdClient(access_to(pair.main))
    await client.call(TXN, TxnRequest(success=[put_op(pair.layout.format, marker)]))
    await client.close()
    with pytest.raises(Damaged, match="has all its contents there"):
        await pair.open(upgrade_format=True)
    assert await pair.bodies() == []


async def test_servers_that_start_together_agree(pair: Pair) -> None:
    async with pair.opened() as one, pair.opened() as other:
        row = await one.put(A, saying("x"))
        assert await other.get(A) == row


async def test_servers_that_make_a_new_store_together_agree(pair: Pair) -> None:
    stores = await asyncio.gather(*(pair.open() for _ in range(4)))
    row = await stores[0].put(A, saying("x"))
    assert await stores[3].get(A) == row
    for store in stores:
        await store.close()


async def test_a_start_that_was_broken_off_is_repeated(pair: Pair) -> None:
    await write(pair)
    # As if the process had ended before the last of the writes that make a new store.
    await pair.wipe(pair.main, pair.layout.format, pair.layout.overrides, pair.layout.epoch)
    await write(pair)


async def test_an_etcd_without_the_contents_is_refused(pair: Pair, third: Etcd) -> None:
    await write(pair)
    elsewhere = {bucket: access_to(third) for bucket in pair.buckets}
    await check_refused(pair, "does not have the contents of more,things: it was emptied", elsewhere)
    await pair.wipe(pair.other)
    await check_refused(pair, "does not have the contents of more,things: it was emptied or replaced")


async def test_the_contents_of_another_store_are_not_touched(pair: Pair, etcd: Etcd, third: Etcd) -> None:
    await write(pair)
    same_place = Pair(third, pair.other, pair.prefix, *pair.buckets)
    with pytest.raises(Damaged, match="has the contents of another store"):
        await same_place.open()
    with pytest.raises(Unavailable, match="holds the contents of another store"):
        async with refilling(
            access_to(third), pair.prefix, seal_with(KEYS), force=False, overrides=pair.overrides()
        ):
            pass
    async with pair.opened() as store:
        assert await store.get(A) is not None


async def test_the_main_etcd_is_no_other_one(pair: Pair) -> None:
    named_otherwise = Access((pair.main.member.replace("127.0.0.1", "localhost"),))
    with pytest.raises(Damaged, match="is that of --store: name another one for things"):
        await pair.open(overrides={BUCKET: named_otherwise})


async def test_an_etcd_with_a_store_of_its_own_is_refused(pair: Pair) -> None:
    await (await open_etcd(access_to(pair.other), prefix=pair.prefix, compact_every_s=0)).close()
    with pytest.raises(Damaged, match="holds a store of its own below /identity/"):
        await pair.open()


async def test_two_overrides_that_changed_places_are_refused(pair: Pair, third: Etcd) -> None:
    overrides = {BUCKET: access_to(pair.other), "more": access_to(third)}
    await (await pair.open(overrides=overrides)).close()
    swapped = {BUCKET: access_to(third), "more": access_to(pair.other)}
    await check_refused(pair, "has the contents of more, not of things", swapped)


async def test_an_older_snapshot_of_the_other_etcd_is_refused(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with running_etcd(folder) as other:
        own = Pair(pair.main, other, pair.prefix)
        await write(own)
        other.kill()
        shutil.copytree(folder / "one", folder / "copy")
        other.start()
        async with own.opened() as store:
            for number in range(10):
                await store.put(A, saying(str(number)))
            await sweep(store)
        other.kill()
        shutil.rmtree(folder / "one")
        (folder / "copy").rename(folder / "one")
        other.start()
        await check_refused(own, "an older snapshot was restored")


async def test_a_running_server_sees_that_the_other_etcd_was_emptied(pair: Pair) -> None:
    async with pair.opened() as store:
        await store.put(A, saying("x"))
        await pair.wipe(pair.other)
        with pytest.raises(Lost, match=f"etcd at {pair.other.member} was emptied below /identity/"):
            await store.check()
        assert isinstance(await store.wait_lost(), Lost)
        with pytest.raises(Lost):
            await store.put(A, saying("y"))


async def test_a_read_sees_it_too(pair: Pair) -> None:
    async with pair.opened() as store:
        await store.put(A, saying("x"))
        async with pair.opened() as other:
            await pair.wipe(pair.other)
            with pytest.raises(Lost, match="was emptied"):
                await other.get(A)


async def test_a_running_server_sees_that_the_other_etcd_was_replaced(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with running_etcd(folder) as other:
        own = Pair(pair.main, other, pair.prefix)
        async with own.opened() as store:
            await store.put(A, saying("x"))
            other.kill()
            shutil.rmtree(folder / "one")
            other.start()
            with pytest.raises(Lost, match=f"etcd at {other.member} (is another cluster|went back)"):
                await store.put(B, saying("y"))
            with suppress(DamagedRow, Lost):
                await store.get(A)


async def test_a_restore_replaces_both(pair: Pair) -> None:
    await write(pair)
    async with pair.opened() as running:
        with pytest.raises(Unavailable, match="--force replaces it"):
            async with refilling(
                access_to(pair.main), pair.prefix, seal_with(KEYS), force=False, overrides=pair.overrides()
            ):
                pass
        # An earlier one was killed.
        with suppress(KeyboardInterrupt):
            await restore(pair, [A], error=KeyboardInterrupt)
        assert isinstance(await running.wait_lost(), Lost)
    await check_refused(pair, "restore it again, with --force")
    await restore(pair, [B])
    async with pair.opened(seal=seal_with(KEYS)) as store:
        assert [row.body for row in (await store.list(BUCKET)).rows] == [b"whole"]
        assert await pair.bodies(pair.main) == []
        assert len(await pair.bodies()) == 1
        await store.put(B, saying("written"))
        assert await sweep(store) == 1


async def restore(pair: Pair, keys: Sequence[Key], error: type[BaseException] | None = None) -> None:
    """Restore these rows; `error`: in the end the process is killed."""
    async with refilling(
        access_to(pair.main), pair.prefix, seal_with(KEYS), force=True, overrides=pair.overrides()
    ) as filling:
        await filling.add([(key, saying("whole")) for key in keys])
        if error is not None:
            raise error


async def test_earlier_versions_refuse_the_store(pair: Pair) -> None:
    await write(pair)
    client = EtcdClient(access_to(pair.main))
    (stored,) = (await client.call(RANGE, RangeRequest(key=pair.layout.format))).kvs
    await client.close()
    # They know two formats, and refuse any other one.
    assert stored.value not in (PLAIN_FORMAT, FORMAT)


async def test_a_backup_of_an_empty_etcd_is_refused_with_overrides(pair: Pair) -> None:
    with pytest.raises(Damaged, match="holds no store below"):
        await collect(pair, pair.overrides())
