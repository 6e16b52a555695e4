"""Sealed rows in etcd: two servers, one ring of data keys."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from certwright.kube.apiserver.paths import DECRYPT, Encryption, Health
from certwright.kube.store.contract import Damaged, Key, Unavailable
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.messages import TXN, TxnRequest, put_op
from certwright.kube.store.etcd.rows import PLAIN_FORMAT, Layout
from certwright.kube.store.etcd.store import EtcdStore, open_etcd
from certwright.kube.store.keyring import KEY_BYTES, WrongKey
from kube.store.opening import asking
from support.etcd import Etcd, running_etcd
from support.sealed import SECRETS, Keys, seal_with

PEM = b"-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n"
META = b'{"annotations":{"last-applied":"' + base64.b64encode(PEM) + b'"}}'


@pytest.fixture
def keys() -> Keys:
    """One wrapping key."""
    return Keys(os.urandom(KEY_BYTES))


async def server(etcd: Etcd, keys: Keys | None, prefix: str, *, wanted: bool = True) -> EtcdStore:
    """The store as one server has it; without keys, one of before. `wanted`: its --encrypt-secrets."""
    seal = None if keys is None else seal_with(keys, wanted=wanted)
    return await open_etcd(Access((etcd.member,), patience_s=120.0), seal=seal, prefix=prefix)


@asynccontextmanager
async def serving(
    etcd: Etcd, keys: Keys | None, prefix: str, *, wanted: bool = True
) -> AsyncIterator[EtcdStore]:
    """As `server`, closed in the end."""
    store = await server(etcd, keys, prefix, wanted=wanted)
    try:
        yield store
    finally:
        await store.close()


async def write(store: EtcdStore, namespace: str, count: int) -> None:
    """Secrets, some of them deleted."""
    for number in range(count):
        key = Key(SECRETS, namespace, f"{number:03}")
        await store.put(key, lambda revision: (META, PEM))
        if number % 5 == 4:
            await store.delete(key, lambda revision: (META, PEM))


async def settle(store: EtcdStore) -> None:
    """Wait until all rows are sealed as they are to be."""
    assert store.rotation is not None
    async with asyncio.timeout(200):
        await store.rotation.finished()
    assert store.rotation.settled


def files_that_show(folder: Path) -> set[str]:
    """Which of etcd's files hold what must not be seen."""
    secrets = PEM[:40], base64.b64encode(PEM)[:40]
    names = set()
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        with suppress(FileNotFoundError):  # etcd renames those that it has just made
            content = path.read_bytes()
            names |= {path.name for secret in secrets if secret in content}
    return names


async def warnings_of(store: EtcdStore) -> str:
    """What `/readyz?verbose` warns of."""
    answer = await Health(store).respond("/readyz", "verbose")
    assert answer is not None
    return "".join(line for line in answer.body.decode().splitlines() if line.startswith("warn: "))


async def test_etcds_files_show_nothing(tmp_path: Path, keys: Keys) -> None:
    with running_etcd(tmp_path) as etcd:
        # Compressed, they would show nothing in any case.
        async with asking(Access((etcd.member,), patience_s=120.0)) as client:
            formats = [put_op(Layout(prefix).format, PLAIN_FORMAT) for prefix in ("/shown", "/other")]
            await client.call(TXN, TxnRequest(success=formats))
        async with serving(etcd, keys, "/shown") as store:
            await write(store, "ns", 20)
            await store.put(Key("things", "", "plain"), lambda revision: (b"", b"plain as day"))
            assert files_that_show(tmp_path) == set()
        async with serving(etcd, None, "/other") as plain:
            await write(plain, "ns", 1)
            assert files_that_show(tmp_path) != set()


async def test_the_wrong_key_is_refused(etcd: Etcd, keys: Keys) -> None:
    await (await server(etcd, keys, "/wrong")).close()
    with pytest.raises(WrongKey):
        await server(etcd, Keys(os.urandom(KEY_BYTES)), "/wrong")


async def test_what_one_server_seals_another_reads_and_watches(etcd: Etcd, keys: Keys) -> None:
    one, two = await server(etcd, keys, "/two"), await server(etcd, keys, "/two")
    watch = two.watch(SECRETS, after=two.revision)
    await write(one, "ns", 5)
    assert [row.body for row in (await two.list(SECRETS)).rows] == [PEM] * 4
    heard = 0
    while heard < 6:
        batch = await watch.next(60)
        assert batch
        assert {(event.row.meta, event.row.body) for event in batch} == {(META, PEM)}
        heard += len(batch)
    await one.close()
    await two.close()


async def test_the_flag_of_one_server_does_not_decrypt_the_store_of_all(
    etcd: Etcd, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(etcd, keys, "/flag") as one:
        await write(one, "ns", 5)
        two = await server(etcd, keys, "/flag", wanted=False)
        assert one.rotation is not None
        assert two.rotation is not None
        assert "Secrets stay encrypted in the store, although" in caplog.text
        assert "Secrets stay encrypted in the store, although" in await warnings_of(two)
        assert await warnings_of(one) == ""
        await two.rotation.rotate()  # nor does a new data key
        await settle(two)
        assert (await one.rotation.progress()).wanted
        assert (await two.rotation.progress()).wanted
        with pytest.raises(
            Unavailable, match="start all servers of the store with --encrypt-secrets=false first"
        ):
            await one.rotation.decrypt()
    await two.close()


async def test_a_store_is_decrypted_by_command_and_its_other_servers_warn(
    etcd: Etcd, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(etcd, keys, "/decrypt") as one:
        two = await server(etcd, keys, "/decrypt", wanted=False)
        await write(one, "ns", 5)
        response = await Encryption(two).respond("POST", DECRYPT)
        assert response is not None
        await settle(two)
        assert await warnings_of(two) == ""
        await one.get(Key(SECRETS, "ns", "000"))
        expected = "Secrets are NOT encrypted in the store, although this server has --encrypt-secrets=true"
        assert expected in caplog.text
        assert expected in await warnings_of(one)
        assert one.rotation is not None
        progress = await one.rotation.progress()
        assert (progress.wanted, progress.settled) == (False, True)
        assert expected in progress.warning
    await two.close()


async def test_a_server_with_a_new_key_does_not_encrypt_the_store_of_others(etcd: Etcd) -> None:
    async with serving(etcd, Keys(), "/nokey", wanted=False) as one:
        await write(one, "ns", 1)
        newcomer = Keys()
        with pytest.raises(Damaged, match="are not encrypted, and the keys of a test has no key"):
            await server(etcd, newcomer, "/nokey")
        assert newcomer.keys == ()


async def test_rows_of_before_are_sealed_in_the_background(etcd: Etcd, keys: Keys) -> None:
    async with serving(etcd, None, "/before") as old:
        await write(old, "ns", 100)
    async with serving(etcd, keys, "/before") as store:
        await settle(store)
        assert [row.body for row in (await store.list(SECRETS)).rows] == [PEM] * 80


async def test_nothing_is_lost_when_one_server_rotates_while_others_write(etcd: Etcd, keys: Keys) -> None:
    one, two = await server(etcd, keys, "/rotate"), await server(etcd, keys, "/rotate")
    await write(one, "before", 100)
    writing = asyncio.gather(write(two, "two", 150), write(one, "one", 150))
    assert one.rotation is not None
    for _ in range(3):
        await one.rotation.rotate()
        await settle(one)
    await writing
    await one.close()
    await two.close()
    async with serving(etcd, keys, "/rotate") as fresh:
        rows = (await fresh.list(SECRETS)).rows
        assert len(rows) == 320
        assert {(row.meta, row.body) for row in rows} == {(META, PEM)}


async def test_a_rotation_that_was_broken_off_goes_on_at_the_next_start(etcd: Etcd, keys: Keys) -> None:
    async with serving(etcd, keys, "/broken") as store:
        await write(store, "ns", 100)
        assert store.rotation is not None
        await store.rotation.rotate()
    async with serving(etcd, keys, "/broken") as store:
        await settle(store)
        assert len((await store.list(SECRETS)).rows) == 80


@pytest.mark.parametrize("change", ["rotate", "rewrap"])
async def test_a_change_of_the_keys_whose_answer_is_lost_has_happened(
    etcd: Etcd, keys: Keys, lose_an_answer: Callable[[], None], change: str
) -> None:
    async with serving(etcd, keys, f"/lost/{change}") as store:
        await write(store, "ns", 5)
        assert store.rotation is not None
        before = await store.rotation.progress()
        lose_an_answer()
        await getattr(store.rotation, change)()
        await settle(store)
        after = await store.rotation.progress()
        assert (before.wrapped_by == after.wrapped_by) == (change == "rotate")
        assert [row.body for row in (await store.list(SECRETS)).rows] == [PEM] * 4


async def test_another_server_that_has_both_keys_follows_to_the_new_one(etcd: Etcd, keys: Keys) -> None:
    one, two = await server(etcd, keys, "/rewrap"), await server(etcd, keys, "/rewrap")
    assert one.rotation is not None
    await one.rotation.rewrap()
    await write(two, "ns", 5)
    assert len((await one.list(SECRETS)).rows) == 4
    await one.close()
    await two.close()
