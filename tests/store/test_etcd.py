"""What only etcd brings: other servers, members that fail, TLS, users, compaction."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trustme

from certwright.store.contract import (
    Compacted,
    Damaged,
    Event,
    Key,
    SlowWatcher,
    TooLarge,
    Unavailable,
)
from certwright.store.etcd import EtcdStore, open_etcd
from certwright.store.etcd_client import Access, EtcdClient
from certwright.store.etcd_compaction import Compaction
from certwright.store.etcd_messages import TXN, TxnRequest, put_op
from certwright.store.etcd_rows import Layout
from conformance.store_words import BUCKET, A, count_up, holding, saying
from support.etcd import MAX_REQUEST_BYTES, Etcd, running_etcd
from support.programs import free_port

_prefixes = itertools.count()


@asynccontextmanager
async def servers(etcd: Etcd, count: int = 2, *, prefix: str = "") -> AsyncIterator[list[EtcdStore]]:
    """The stores of several servers on one etcd."""
    prefix = prefix or f"/shared/{next(_prefixes)}"
    stores = [await open_etcd(Access((etcd.member,)), prefix=prefix, compact_every_s=0) for _ in range(count)]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


def note_revisions(into: list[int], events: list[Event]) -> None:
    """Follow a store by its revisions."""
    into += [event.revision for event in events]


class TestServers:
    """Two servers on one etcd."""

    async def test_what_one_writes_the_other_reads_at_once(self, etcd: Etcd) -> None:
        async with servers(etcd) as (one, other):
            for number in range(20):
                row = await one.put(A, saying(str(number)))
                assert await other.get(A) == row
                assert other.revision >= row.revision
                assert (await other.list(BUCKET)).rows == [row]

    async def test_a_watch_on_one_hears_of_writes_through_the_other(self, etcd: Etcd) -> None:
        async with servers(etcd) as (one, other):
            watch = other.watch(BUCKET, after=other.revision)
            first = await one.put(A, saying("one"), expect=0)
            second = await other.put(A, saying("two"), expect=first.revision)
            gone = await one.delete(A, saying("bye"))
            events: list[Event] = []
            while len(events) < 3:
                events += await watch.next(timeout_s=10) or ()
            assert events == [
                Event(first.revision, first, None),
                Event(second.revision, second, first),
                Event(gone.revision, gone, second, deleted=True),
            ]

    async def test_of_two_that_write_at_the_same_time_one_wins(self, etcd: Etcd) -> None:
        async with servers(etcd) as (one, other):
            for number in range(10):
                key = Key(BUCKET, "", str(number))
                results = await asyncio.gather(
                    one.put(key, saying("one"), expect=0),
                    other.put(key, saying("other"), expect=0),
                    return_exceptions=True,
                )
                assert sorted(type(result).__name__ for result in results) == ["Exists", "Row"]

    async def test_a_counter_that_both_count_up_misses_nothing(self, etcd: Etcd) -> None:
        async with servers(etcd) as stores:
            await stores[0].put(A, saying("0"))
            await asyncio.gather(*(count_up(store, A) for store in stores * 10))
            row = await stores[1].get(A)
            assert row is not None
            assert row.body == b"20"

    async def test_a_revision_that_the_other_wrote_is_waited_for(self, etcd: Etcd) -> None:
        async with servers(etcd) as (one, other):
            row = await one.put(A, saying("x"))
            assert await other.up_to(row.revision) >= row.revision
            ahead = other.revision + 1_000
            assert await other.up_to(ahead) < ahead

    async def test_followers_hear_of_a_write_before_the_writer_is_answered(self, etcd: Etcd) -> None:
        async with servers(etcd) as stores:
            heard: list[list[int]] = [[], []]
            for store, revisions in zip(stores, heard, strict=True):
                store.follow(partial(note_revisions, revisions))
            for turn in range(10):
                row = await stores[turn % 2].put(A, saying(str(turn)))
                assert row.revision in heard[turn % 2]
            await asyncio.gather(*(store.up_to(row.revision) for store in stores))
            assert heard[0] == heard[1]
            assert heard[0] == sorted(set(heard[0]))

    async def test_what_others_write_to_the_same_etcd_is_not_waited_for(self, etcd: Etcd) -> None:
        async with servers(etcd, 1) as (one,), servers(etcd, 1) as (stranger,):
            await one.put(A, saying("x"))
            foreign = await stranger.put(A, saying("x"))
            page = await one.list(BUCKET)
            assert page.revision >= foreign.revision
            assert len(page.rows) == 1
            assert one.watch(BUCKET, after=page.revision).position >= page.revision

    async def test_a_server_that_starts_again_finds_everything(self, etcd: Etcd) -> None:
        async with servers(etcd, 1, prefix="/again") as (one,):
            row = await one.put(A, saying("x"))
        async with servers(etcd, 1, prefix="/again/") as (again,):
            assert await again.get(A) == row
            assert again.revision >= row.revision


class TestSizes:
    """Large rows, and lists of them."""

    async def test_a_row_too_large_for_etcd_is_refused_with_the_limit(self, etcd: Etcd) -> None:
        async with servers(etcd, 1) as (store,):
            for size in (MAX_REQUEST_BYTES, 2 * MAX_REQUEST_BYTES):
                body = b"x" * size
                with pytest.raises(TooLarge, match="max-request-bytes"):
                    await store.put(A, holding(body))
            assert await store.get(A) is None

    async def test_metadata_is_listed_without_reading_the_bodies(self, etcd: Etcd) -> None:
        async with servers(etcd, 1) as (store,):
            body = b"x" * (1 << 20)
            for number in range(20):
                await store.put(Key(BUCKET, "", f"{number:02}"), lambda revision: (b"m%d" % revision, body))
            before = await asyncio.to_thread(sent_bytes, etcd)
            page = await store.list(BUCKET, meta_only=True)
            assert [row.meta for row in page.rows] == [b"m%d" % row.revision for row in page.rows]
            assert len(page.rows) == 20
            assert await asyncio.to_thread(sent_bytes, etcd) - before < 50_000
            chosen = await store.list(BUCKET, keep=lambda row: row.key.name in ("07", "19"))
            assert [(row.key.name, row.body) for row in chosen.rows] == [("07", body), ("19", body)]
            assert await asyncio.to_thread(sent_bytes, etcd) - before < 3 << 20

    async def test_pages_of_large_rows_end_where_they_are_full(self, etcd: Etcd) -> None:
        async with servers(etcd, 1) as (store,):
            for number in range(30):
                body = b"x" * (1 << 18 if number % 3 else 10)
                await store.put(Key(BUCKET, "", f"{number:02}"), holding(body))
            names: list[str] = []
            page = await store.list(BUCKET, max_bytes=1 << 20)
            while True:
                sizes = [len(row.body) for row in page.rows]
                assert sum(sizes[:-1]) < 1 << 20
                names += [row.key.name for row in page.rows]
                if not page.more:
                    break
                assert page.remaining == 30 - len(names)
                after = page.rows[-1].key[1:]
                page = await store.list(BUCKET, after=after, revision=page.revision, max_bytes=1 << 20)
            assert names == [f"{number:02}" for number in range(30)]


def sent_bytes(etcd: Etcd) -> float:
    """How many bytes etcd has sent to its clients, as it says itself."""
    with urllib.request.urlopen(f"http://{etcd.member}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    name = "etcd_network_client_grpc_sent_bytes_total "
    return next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


class Relay:
    """A way to an etcd that can be cut, for one server alone."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self._pipes: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = free_port()

    async def open(self) -> None:
        """Let connections through."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """End the connections, and let no new ones through."""
        assert self._server is not None
        self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self._etcd.port)
        for source, sink in ((reader, forth), (back, writer)):
            self._pipes.add(asyncio.create_task(self._pump(source, sink)))

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        finally:
            sink.close()


class TestCompaction:
    """Old revisions go; nothing else does."""

    async def test_one_server_at_a_time_compacts(self, etcd: Etcd) -> None:
        client = EtcdClient(Access((etcd.member,)))
        async with servers(etcd, 1) as (store,):
            one, other = (Compaction(client, b"/test/compaction") for _ in range(2))
            assert (await one.look(), await other.look()) == (0, 0)
            for _ in range(3):
                seen = store.revision
                await store.put(A, saying("x"))
                compacted = await one.look()
                assert compacted >= seen - 2
                assert await other.look() == 0
        await client.close()

    async def test_a_list_that_was_compacted_away_is_refused_with_what_is_left(self, etcd: Etcd) -> None:
        async with servers(etcd, 1) as (store,):
            first = await store.put(A, saying("one"))
            last = await store.put(A, saying("two"))
            await store.compact(last.revision)
            with pytest.raises(Compacted) as refused:
                await store.list(BUCKET, revision=first.revision)
            assert refused.value.oldest == last.revision

    async def test_a_server_that_missed_changes_says_so_and_cuts_its_watchers_off(self, etcd: Etcd) -> None:
        relay = Relay(etcd)
        await relay.open()
        async with servers(etcd, 1, prefix="/missed") as (one,):
            other = await open_etcd(Access((f"127.0.0.1:{relay.port}",)), prefix="/missed")
            await one.put(A, saying("one"))
            watch = other.watch(BUCKET, after=await other.up_to(one.revision))
            await relay.cut()
            for number in range(5):
                await one.put(A, saying(str(number)))
            await one.compact(one.revision)
            await relay.open()
            assert "compacted" in str(await asyncio.wait_for(other.wait_lost(), 60))
            with pytest.raises(SlowWatcher):
                await watch.next(timeout_s=10)
            row = await other.get(A)
            assert row is not None
            assert row.body == b"4"
            await other.close()
            await relay.cut()

    async def test_a_server_that_was_cut_off_for_a_while_catches_up(self, etcd: Etcd) -> None:
        relay = Relay(etcd)
        await relay.open()
        async with servers(etcd, 1, prefix="/cut") as (one,):
            other = await open_etcd(Access((f"127.0.0.1:{relay.port}",)), prefix="/cut")
            watch = other.watch(BUCKET, after=other.revision)
            await relay.cut()
            written = [(await one.put(A, saying(str(number)))).revision for number in range(5)]
            await relay.open()
            heard: list[int] = []
            while len(heard) < 5:
                heard += [event.revision for event in await watch.next(timeout_s=60) or ()]
            assert heard == written
            await other.close()
            await relay.cut()


class TestRefusals:
    """Whoever starts a server is told what is wrong with its etcd, in one sentence."""

    async def refused(self, access: Access) -> str:
        with pytest.raises(Unavailable) as refused:
            await open_etcd(replace(access, patience_s=3.0))
        return str(refused.value)

    async def test_nobody_listens_there(self) -> None:
        text = await self.refused(Access((f"127.0.0.1:{free_port()}",)))
        assert "cannot be reached" in text

    async def test_a_member_that_is_gone_is_passed_over(self, etcd: Etcd) -> None:
        store = await open_etcd(Access((f"127.0.0.1:{free_port()}", etcd.member)), prefix="/passed-over")
        row = await store.put(A, saying("x"))
        assert await store.get(A) == row
        await store.close()

    async def test_a_store_of_a_later_format_is_left_alone(self, etcd: Etcd) -> None:
        client, layout = EtcdClient(Access((etcd.member,))), Layout("/later")
        await client.call(TXN, TxnRequest(success=[put_op(layout.format, b"9")]))
        await client.close()
        with pytest.raises(Damaged, match="newer certwright"):
            await open_etcd(Access((etcd.member,)), prefix="/later")

    async def test_what_no_certwright_wrote_is_named(self, etcd: Etcd) -> None:
        async with servers(etcd, 1, prefix="/strange") as (store,):
            client = EtcdClient(Access((etcd.member,)))
            meta_key, _ = Layout("/strange").keys(A)
            await client.call(TXN, TxnRequest(success=[put_op(meta_key, b"{}")]))
            await client.close()
            with pytest.raises(Damaged, match="things ns a"):
                await store.get(A)

    async def test_users_and_passwords(self, tmp_path: Path) -> None:
        with running_etcd(tmp_path) as etcd:
            await asyncio.to_thread(administer, etcd, *add_user("root", "root"), ("enable", {}))
            access = Access((etcd.member,), user="root", password="secret")
            assert "--etcd-user" in await self.refused(replace(access, user=None))
            assert "password" in await self.refused(replace(access, password="wrong"))
            store = await open_etcd(access)
            row = await store.put(A, saying("x"))
            etcd.kill()
            etcd.start()  # which forgets its tokens
            assert await store.get(A) == row
            await store.put(A, saying("y"))
            await store.close()

    async def test_a_user_may_be_let_in_to_the_prefix_only(self, tmp_path: Path) -> None:
        with running_etcd(tmp_path) as etcd:
            begin, end = (base64.b64encode(key).decode() for key in (b"/certwright/", b"/certwright0"))
            permission = {"permType": "READWRITE", "key": begin, "range_end": end}
            await asyncio.to_thread(
                administer,
                etcd,
                *add_user("root", "root"),
                *add_user("cw", "cw"),
                ("role/grant", {"name": "cw", "perm": permission}),
                ("enable", {}),
            )
            access = Access((etcd.member,), user="cw", password="secret")
            store = await open_etcd(access)
            await store.put(A, saying("x"))
            assert len((await store.list(BUCKET)).rows) == 1
            await store.close()
            with pytest.raises(Unavailable, match="does not let the user"):
                await open_etcd(access, prefix="/elsewhere")

    async def test_certificates(self, tmp_path: Path) -> None:
        ca, stranger = trustme.CA(), trustme.CA()
        server, client = ca.issue_cert("127.0.0.1"), ca.issue_cert("client.test", common_name="client")
        pem = {
            "ca": ca.cert_pem.bytes(),
            "stranger": stranger.cert_pem.bytes(),
            "server.crt": server.cert_chain_pems[0].bytes(),
            "server.key": server.private_key_pem.bytes(),
            "client.crt": client.cert_chain_pems[0].bytes(),
            "client.key": client.private_key_pem.bytes(),
        }
        for name, content in pem.items():
            (tmp_path / name).write_bytes(content)
        tls = (
            f"--cert-file={tmp_path / 'server.crt'}",
            f"--key-file={tmp_path / 'server.key'}",
            f"--trusted-ca-file={tmp_path / 'ca'}",
            "--client-cert-auth=true",
        )
        with running_etcd(tmp_path, tls=tls) as etcd:
            access = Access(
                (etcd.member,),
                tls=True,
                ca_file=tmp_path / "ca",
                cert_file=tmp_path / "client.crt",
                key_file=tmp_path / "client.key",
            )
            store = await open_etcd(access)
            row = await store.put(A, saying("x"))
            assert await store.get(A) == row
            await store.close()
            assert "--etcd-cafile" in await self.refused(replace(access, ca_file=tmp_path / "stranger"))
            assert "etcds://" in await self.refused(replace(access, tls=False, ca_file=None))
            assert "not there" in await self.refused(replace(access, ca_file=tmp_path / "nowhere"))
            assert "PEM" in await self.refused(replace(access, ca_file=tmp_path / "one.log"))


def administer(etcd: Etcd, *calls: tuple[str, dict[str, object]]) -> None:
    """What an administrator of etcd does, by its JSON gateway."""
    for path, body in calls:
        request = urllib.request.Request(f"http://{etcd.member}/v3/auth/{path}", json.dumps(body).encode())
        urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - http, see above


def add_user(name: str, role: str) -> tuple[tuple[str, dict[str, object]], ...]:
    """The calls that make a user with the password `secret`, and give it a role that is new."""
    return (
        ("user/add", {"name": name, "password": "secret"}),
        ("role/add", {"name": role}),
        ("user/grant", {"user": name, "role": role}),
    )
