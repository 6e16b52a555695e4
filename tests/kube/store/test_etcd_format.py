"""The format of rows in etcd: compressed values, and the upgrade of an existing store while servers run."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import os

import pytest

from certwright.kube.store.contract import Damaged, DamagedRow, Encode, Event, Key, Lost, StoreError
from certwright.kube.store.etcd import compression
from certwright.kube.store.etcd.backup import dump_etcd
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.compression import RowCompression
from certwright.kube.store.etcd.messages import (
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    WatchCreateRequest,
    delete_op,
    put_op,
)
from certwright.kube.store.etcd.rows import FORMAT, PLAIN_FORMAT, SPLIT_FORMAT, UNFINISHED, Layout
from certwright.kube.store.etcd.store import open_etcd
from kube.store.opening import asking, opened
from support.etcd import Etcd
from support.sealed import SECRETS, Keys, seal_with

THINGS = "things"
A, B, C = (Key(THINGS, "ns", name) for name in "abc")
META = (
    b'{"name":"a","namespace":"default","resourceVersion":"%d","managedFields":[{"manager":"x","operation":'
)
META += (
    b'"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{}}}}}]}'
)


def pem(der: bytes) -> bytes:
    """A certificate as a Secret contains it, without the base64 of JSON."""
    text = base64.b64encode(der)
    lines = b"\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return b"-----BEGIN CERTIFICATE-----\n%b\n-----END CERTIFICATE-----\n" % lines


def data(text: bytes) -> bytes:
    """The body of a Secret."""
    return b'"type":"kubernetes.io/tls","data":{"tls.crt":"%b"}' % base64.b64encode(text)


BODY = data(pem(bytes(range(100))))
DICTIONARY = "4a83da3542e90473195d8cb727de1f391db550071f42deb96f6387cc52d559c9"
STORED = base64.b64decode(
    "AHoxINbdAwCUBpPELsRkAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMz"
    "Q1Njc4OTo7PD0+P0BBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWltcXV5fYGFiYwT85iiYx3Gm8ExhY5D6Jgc="
)
"""`BODY` as the first version that compressed rows stored it."""
_prefixes = (f"/format/{number}" for number in itertools.count())


def saying(body: bytes = BODY) -> Encode:
    """A row like those of the API server."""
    return lambda revision: (META % revision, body)


def at(etcd: Etcd) -> Access:
    """On a machine that may be slow."""
    return Access((etcd.member,), patience_s=120.0)


async def value(client: EtcdClient, key: bytes) -> bytes | None:
    """The value of one of etcd's keys."""
    pairs = (await client.call(RANGE, RangeRequest(key=key))).kvs
    return bytes(pairs[0].value) if pairs else None


async def make_old_store(client: EtcdClient, prefix: str) -> None:
    """What an earlier version leaves behind after its first start."""
    await client.call(TXN, TxnRequest(success=[put_op(Layout(prefix).format, PLAIN_FORMAT)]))


async def is_compressed(client: EtcdClient, prefix: str, key: Key) -> bool:
    """Whether both values of a row are."""
    values = [await value(client, row_key) for row_key in Layout(prefix).keys(key)]
    return all(stored is not None and stored.startswith(b"\0z1") for stored in values)


class TestCompression:
    """The values themselves."""

    @pytest.mark.parametrize(
        "plain",
        [
            *(b"", b"{}", b"\0", b"\0z1", b"\0z1" + BODY, b"\0sealed1", META, BODY, bytes(300_000)),
            *(data(pem(os.urandom(size))) for size in (47, 48, 49, 96, 1_000)),
            *(data(os.urandom(size)) for size in (59, 60, 61, 62, 1_000)),
            data(pem(bytes(500)) * 3 + b"\n" + pem(b"x" * 48).replace(b"\n", b"\r\n") + b"-----BEGIN "),
            data(b"")[:-2] + b"A" * 101 + b'"}',
            data(b"")[:-2] + b"A" * 99 + b"B" + b'"}',
            data(b"")[:-2] + b"A" * 97 + b'B=="}',
            data(b"")[:-2]
            + base64.b64encode(b"-----BEGIN X-----\n" + b"A" * 61 + b"B==\n-----END X-----")
            + b'"}',
        ],
    )
    def test_every_value_survives(self, plain: bytes) -> None:
        stored = RowCompression().compress(plain)
        assert RowCompression().decompress(stored) == plain
        assert len(stored) <= len(plain) + 24

    def test_values_of_an_earlier_format_are_read_as_they_are(self) -> None:
        assert RowCompression().decompress(BODY) == BODY

    def test_the_dictionary_of_a_format_never_changes(self) -> None:
        dictionary = compression._DICTIONARY.read_bytes()
        assert hashlib.sha256(dictionary).hexdigest() == DICTIONARY
        assert RowCompression().decompress(STORED) == BODY

    @pytest.mark.parametrize("stored", [b"\0z1", b"\0z1garbage", b"\0z1\x20\xff\xff"])
    def test_what_is_no_frame_is_refused(self, stored: bytes) -> None:
        with pytest.raises(ValueError, match=r".+"):
            RowCompression().decompress(stored)

    def test_a_frame_that_would_fill_the_memory_is_refused(self) -> None:
        stored = b"\0z1" + b"\xa0" + (1 << 31).to_bytes(4, "little") + b"\x01\0\0"
        with pytest.raises(ValueError, match="its size is not that of a row"):
            RowCompression().decompress(stored)


class TestRows:
    """Rows of a new store."""

    async def test_they_are_compressed_and_read_as_they_were_written(self, etcd: Etcd) -> None:
        prefix = next(_prefixes)
        async with opened(at(etcd), prefix=prefix) as store, asking(at(etcd)) as client:
            row = await store.put(A, saying())
            assert await is_compressed(client, prefix, A)
            assert await store.get(A) == row
            assert (await store.list(THINGS)).rows == [row]
            gone = await store.delete(A, saying(b"bye"))
            assert gone.meta == META % gone.revision

    async def test_sealed_rows_are_compressed_before_they_are_sealed(self, etcd: Etcd) -> None:
        prefix, key = next(_prefixes), Key(SECRETS, "ns", "a")
        async with (
            opened(at(etcd), prefix=prefix, seal=seal_with(Keys())) as store,
            asking(at(etcd)) as client,
        ):
            row = await store.put(key, saying(bytes(10_000)))
            kept = await value(client, Layout(prefix).keys(key)[1])
            assert kept is not None
            assert kept.startswith(b"\0sealed1")
            assert len(kept) < 200
            assert await store.get(key) == row

    async def test_a_damaged_row_affects_only_itself(self, etcd: Etcd) -> None:
        prefix = next(_prefixes)
        async with opened(at(etcd), prefix=prefix) as store, asking(at(etcd)) as client:
            await store.put(A, saying())
            row = await store.put(B, saying())
            body = Layout(prefix).keys(A)[1]
            kept = await value(client, body) or b""
            await client.call(TXN, TxnRequest(success=[put_op(body, kept[:3] + b"x" + kept[4:])]))
            with pytest.raises(DamagedRow, match="does not decompress"):
                await store.get(A)
            page = await store.list(THINGS)
            assert (page.rows, page.damaged) == ([row], (A,))


class TestUpgrade:
    """A store that an earlier version made."""

    async def test_it_keeps_its_format_until_that_is_requested(self, etcd: Etcd) -> None:
        prefix = next(_prefixes)
        async with asking(at(etcd)) as client:
            await make_old_store(client, prefix)
            async with opened(at(etcd), prefix=prefix) as store:
                first = await store.put(A, saying())
                assert await value(client, Layout(prefix).keys(A)[1]) == BODY
            async with opened(at(etcd), prefix=prefix, upgrade_format=True) as store:
                second = await store.put(B, saying())
                assert await is_compressed(client, prefix, B)
                assert await value(client, Layout(prefix).keys(A)[1]) == BODY
                assert (await store.list(THINGS)).rows == [first, second]
            async with opened(at(etcd), prefix=prefix) as store:
                assert (await store.list(THINGS)).rows == [first, second]
                await store.put(A, saying())
                assert await is_compressed(client, prefix, A)

    async def test_servers_of_this_version_follow_and_lose_nothing(self, etcd: Etcd) -> None:
        prefix = next(_prefixes)
        async with asking(at(etcd)) as client:
            await make_old_store(client, prefix)
            async with opened(at(etcd), prefix=prefix) as one, opened(at(etcd), prefix=prefix) as other:
                watch = other.watch(THINGS, after=other.revision)
                rows = [await one.put(A, saying())]
                async with opened(at(etcd), prefix=prefix, upgrade_format=True) as third:
                    rows.append(await third.put(B, saying()))
                    assert await one.get(B) == await other.get(B) == rows[-1]
                    rows.append(await one.put(C, saying()))
                    assert await is_compressed(client, prefix, C)
                    await other.up_to(rows[-1].revision)
                    assert (await other.list(THINGS)).rows == rows
                events = list[Event]()
                while len(events) < 3:
                    events += await watch.next(timeout_s=60) or ()
                assert [event.row for event in events] == rows

    async def test_servers_of_an_earlier_version_see_their_store_vanish_before_it_changes(
        self, etcd: Etcd
    ) -> None:
        # They take the deletion of `format` for an emptied store, and end (test_etcd_lost.py); what follows
        # they refuse (test_etcd.py, TestRefusals).
        prefix = next(_prefixes)
        async with asking(at(etcd)) as client:
            await make_old_store(client, prefix)
            begun = (await client.call(RANGE, RangeRequest(key=b"x"))).header.revision
            async with opened(at(etcd), prefix=prefix, upgrade_format=True) as store:
                await store.put(A, saying())
            history = []
            create = WatchCreateRequest(
                key=Layout(prefix).root.begin, range_end=Layout(prefix).root.end, start_revision=begun + 1
            )
            async with asyncio.timeout(60):
                async for answers in client.watch(create):
                    events = [event for answer in answers for event in answer.events]
                    history += [(event.kv.key, event.type, event.kv.value) for event in events]
                    if any(key == Layout(prefix).keys(A)[0] for key, _, _ in history):
                        break
            formats = [(kind, text) for key, kind, text in history if key == Layout(prefix).format]
            assert formats == [(1, b""), (0, FORMAT)]

    async def test_one_that_was_interrupted_is_completed(self, etcd: Etcd) -> None:
        prefix = next(_prefixes)
        layout = Layout(prefix)
        async with asking(at(etcd)) as client:
            half = [delete_op(layout.format), put_op(layout.upgrade, FORMAT)]
            await client.call(TXN, TxnRequest(success=half))
            async with opened(at(etcd), prefix=prefix) as store:
                await store.put(A, saying())
                assert await is_compressed(client, prefix, A)
            assert await value(client, layout.format) == FORMAT
            assert await value(client, layout.upgrade) is None

    async def test_a_server_ends_when_a_backup_replaces_its_store(self, etcd: Etcd) -> None:
        prefix = next(_prefixes)
        async with opened(at(etcd), prefix=prefix) as store, asking(at(etcd)) as client:
            await client.call(TXN, TxnRequest(success=[put_op(Layout(prefix).format, UNFINISHED)]))
            async with asyncio.timeout(60):
                error: StoreError = await store.wait_lost()
            assert isinstance(error, Lost)
            assert "is being replaced by a backup" in str(error)
            with pytest.raises(Damaged, match="restore it again"):
                await open_etcd(at(etcd), prefix=prefix)

    async def test_a_store_with_contents_on_other_etcds_is_refused_with_the_way_out(self, etcd: Etcd) -> None:
        prefix = next(_prefixes)
        async with asking(at(etcd)) as client:
            await client.call(TXN, TxnRequest(success=[put_op(Layout(prefix).format, SPLIT_FORMAT)]))
        with pytest.raises(Damaged, match="run `certwright backup` with the release before"):
            await open_etcd(at(etcd), prefix=prefix)
        with pytest.raises(Damaged, match="--etcd-servers-overrides"):
            async with dump_etcd(at(etcd), prefix, seal_with(Keys())):
                pass
