"""What only etcd brings: other servers, members that fail, TLS, users, compaction."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import trustme

from certwright.kube.store.contract import (
    Compacted,
    Damaged,
    Event,
    Key,
    Row,
    SlowWatcher,
    TooLarge,
    Unavailable,
)
from certwright.kube.store.etcd import feed
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.feed import Feed
from certwright.kube.store.etcd.http2 import CallFailed, Status
from certwright.kube.store.etcd.maintenance import Compaction
from certwright.kube.store.etcd.messages import STATUS, TXN, WATCH, StatusRequest, TxnRequest, put_op
from certwright.kube.store.etcd.rows import Layout, Meta
from certwright.kube.store.etcd.store import EtcdStore, open_etcd
from certwright.kube.store.fanout import Fanout
from certwright.kube.store.log import EventLog
from conformance.store_words import BUCKET, A, count_up, events_of, holding, saying
from kube.store.opening import asking, opened
from support.etcd import MAX_REQUEST_BYTES, Etcd, running_etcd
from support.programs import free_port

_prefixes = itertools.count()
_ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
"""Without a proxy, whatever the environment says."""


def at(*members: str) -> Access:
    """How these members are spoken to, on a machine that may be slow."""
    return Access(members, patience_s=120.0)


@asynccontextmanager
async def servers(etcd: Etcd, count: int = 2, *, prefix: str = "") -> AsyncIterator[list[EtcdStore]]:
    """The stores of several servers on one etcd."""
    prefix = prefix or f"/shared/{next(_prefixes)}"
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(at(etcd.member), prefix=prefix)) for _ in range(count)]


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

    async def test_a_recent_row_is_known_without_a_read_unless_it_is_being_written(self, etcd: Etcd) -> None:
        async with servers(etcd) as (one, other):
            assert one.recent(A) is None
            row = await one.put(A, saying("one"))
            assert one.recent(A) == row
            writing = asyncio.create_task(one.put(A, saying("two"), expect=row.revision))
            await asyncio.sleep(0)
            assert one.recent(A) is None
            row = await writing
            await other.up_to(row.revision)
            assert other.recent(A) == row
            gone = await other.delete(A, expect=row.revision)
            await one.up_to(gone.revision)
            assert one.recent(A) is other.recent(A) is None

    async def test_one_that_nobody_asks_takes_events_together(
        self, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(feed, "_REST_S", 3_600)
        async with servers(etcd) as (one, other):
            await other.up_to((await one.put(A, saying("first"))).revision)
            batches = list[int]()
            other.follow(lambda events: batches.append(len(events)))
            for number in range(10):
                row = await one.put(A, saying(str(number)))
            assert await other.get(A) == row
            assert sum(batches) == 10
            assert len(batches) < 10

    async def test_a_watch_ends_the_rest_of_one_that_nobody_asked(
        self, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(feed, "_REST_S", 3_600)
        async with servers(etcd) as (one, other):
            await other.up_to((await one.put(A, saying("first"))).revision)
            watch = other.watch(BUCKET, after=other.revision)
            for number in range(3):
                row = await one.put(A, saying(str(number)))
                assert [event.row for event in await watch.next(timeout_s=60) or ()] == [row]

    async def test_a_watch_on_one_hears_of_writes_through_the_other(self, etcd: Etcd) -> None:
        async with servers(etcd) as (one, other):
            watch = other.watch(BUCKET, after=other.revision)
            first = await one.put(A, saying("one"), expect=0)
            second = await other.put(A, saying("two"), expect=first.revision)
            gone = await one.delete(A, saying("bye"))
            events: list[Event] = []
            while len(events) < 3:
                events += await watch.next(timeout_s=60) or ()
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


class TestLostAnswers:
    """A write that etcd has carried out, and nobody was told."""

    async def test_a_write_whose_answer_is_lost_has_happened_once(
        self, etcd: Etcd, lose_an_answer: Callable[[], None]
    ) -> None:
        async with servers(etcd, 1) as (store,):
            start = store.revision
            lose_an_answer()
            first = await store.put(A, saying("one"), expect=0)
            lose_an_answer()
            second = await store.put(A, saying("two"), expect=first.revision)
            lose_an_answer()
            gone = await store.delete(A, saying("bye"), expect=second.revision)
            assert await events_of(store, after=start) == [
                Event(first.revision, first, None),
                Event(second.revision, second, first),
                Event(gone.revision, gone, second, deleted=True),
            ]

    async def test_a_silence_that_was_cut_short_does_not_hide_what_was_said_before(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = [
            CallFailed(Status.UNAVAILABLE, "connection refused"),
            *[CallFailed(Status.DEADLINE_EXCEEDED, "Deadline Exceeded")] * 100,
        ]
        monkeypatch.setattr(EtcdClient, "_call_member", AsyncMock(side_effect=words))
        async with asking(replace(at("127.0.0.1:1"), patience_s=0.2)) as client:
            with pytest.raises(Unavailable, match="cannot be reached"):
                await client.call(STATUS, StatusRequest())


class Told(EtcdClient):
    """An etcd that tells of certain events, and then of none."""

    def __init__(self, response: Any) -> None:
        super().__init__(at("127.0.0.1:1"))
        self._response = response

    async def watch(self, create: Any) -> AsyncGenerator[list[Any], None]:
        yield [self._response]
        await asyncio.get_running_loop().create_future()


async def test_writes_to_a_row_that_arrive_together_follow_each_other() -> None:
    layout, response = Layout("/x"), WATCH.response()
    for revision, text in ((1, b"one"), (2, b"two")):
        for op in layout.put_ops(A, Meta(b"w", [b"at ", b""]), text):
            event = response.events.add()
            event.kv.key, event.kv.value = op.request_put.key, op.request_put.value
            event.kv.mod_revision = event.kv.version = revision
    client, fanout = Told(response), Fanout(EventLog(0))
    watch = fanout.subscribe(BUCKET, after=0)
    feed = Feed(client, layout, fanout)
    await feed.reach(2)
    first, second = Row(A, 1, b"at 1", b"one"), Row(A, 2, b"at 2", b"two")
    assert await watch.next(60) == [Event(1, first, None), Event(2, second, first)]
    await feed.close()
    await client.close()


class Compacting(Told):
    """One that has compacted what was before these events."""

    async def call(self, method: Any, request: Any) -> Any:
        raise Compacted(7)


async def test_watchers_are_cut_off_when_what_a_row_replaced_was_compacted() -> None:
    layout, response = Layout("/x"), WATCH.response()
    for op in layout.put_ops(A, Meta(b"w", [b"at ", b""]), b"two"):
        event = response.events.add()
        event.kv.key, event.kv.value = op.request_put.key, op.request_put.value
        event.kv.mod_revision, event.kv.version = 9, 2
    client, fanout = Compacting(response), Fanout(EventLog(8))
    watch = fanout.subscribe(BUCKET, after=8)
    feed = Feed(client, layout, fanout)
    await feed.reach(9)
    with pytest.raises(SlowWatcher):
        await watch.next(60)
    await feed.close()
    await client.close()


async def test_rows_that_a_server_has_never_seen_are_what_events_replace(etcd: Etcd) -> None:
    keys = [Key(BUCKET, "", f"{number:03}") for number in range(120)]
    prefix = f"/shared/{next(_prefixes)}"
    async with servers(etcd, 1, prefix=prefix) as (one,):
        old = await asyncio.gather(*(one.put(key, saying(f"old {key.name}")) for key in keys))
        async with servers(etcd, 1, prefix=prefix) as (other,):
            watch = other.watch(BUCKET, after=other.revision)
            await asyncio.gather(*(one.put(row.key, saying("new"), expect=row.revision) for row in old[:100]))
            await asyncio.gather(*(one.delete(row.key, expect=row.revision) for row in old[100:]))
            events: list[Event] = []
            while len(events) < len(keys):
                events += await watch.next(60) or ()
    assert {event.row.key: event.previous for event in events} == {row.key: row for row in old}
    assert all(event.row.body.startswith(b"old") for event in events if event.deleted)


class TestSizes:
    """Large rows, and lists of them."""

    async def test_a_row_too_large_for_etcd_is_refused_with_the_limit(self, etcd: Etcd) -> None:
        async with servers(etcd, 1) as (store,):
            for size in (MAX_REQUEST_BYTES, 2 * MAX_REQUEST_BYTES):
                body = os.urandom(size)
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
    with _ask(f"http://{etcd.member}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    name = "etcd_network_client_grpc_sent_bytes_total "
    return next(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


class Relay:
    """A way to an etcd that can be cut, for one server alone."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd
        self._ends: list[asyncio.StreamWriter] = []
        self._pipes: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self._port = free_port()

    @property
    def member(self) -> str:
        """Where the server finds the etcd."""
        return f"127.0.0.1:{self._port}"

    async def open(self) -> None:
        """Let connections through."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)

    async def cut(self) -> None:
        """End the connections, and let no new ones through."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for end in self._ends:
            end.transport.abort()
        await asyncio.gather(*self._pipes)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self._etcd.port)
        if self._server is None:  # it was cut meanwhile
            writer.close()
            forth.close()
            return
        self._ends += (writer, forth)
        for source, sink in ((reader, forth), (back, writer)):
            self._pipes.append(asyncio.create_task(self._pump(source, sink)))

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with closing(sink), suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()


@asynccontextmanager
async def relayed(etcd: Etcd, prefix: str) -> AsyncIterator[tuple[EtcdStore, Relay, EtcdStore]]:
    """A server, the way of another to the same etcd, and that other one."""
    async with AsyncExitStack() as stack:
        (one,) = await stack.enter_async_context(servers(etcd, 1, prefix=prefix))
        relay = Relay(etcd)
        await relay.open()
        stack.push_async_callback(relay.cut)
        other = await stack.enter_async_context(opened(at(relay.member), prefix=prefix))
        yield one, relay, other


class TestCompaction:
    """Old revisions go; nothing else does."""

    async def test_one_server_at_a_time_compacts(self, etcd: Etcd) -> None:
        async with asking(at(etcd.member)) as client, servers(etcd, 1) as (store,):
            key = b"/test/compaction/%d" % next(_prefixes)
            one, other = (Compaction(client, key) for _ in range(2))
            assert (await one.look(), await other.look()) == (0, 0)
            for _ in range(3):
                seen = store.revision
                await store.put(A, saying("x"))
                compacted = await one.look()
                assert compacted >= seen - 2
                assert await other.look() == 0

    async def test_a_list_that_was_compacted_away_is_refused_with_what_is_left(self, etcd: Etcd) -> None:
        async with servers(etcd, 1) as (store,):
            first = await store.put(A, saying("one"))
            last = await store.put(A, saying("two"))
            await store.compact(last.revision)
            with pytest.raises(Compacted) as refused:
                await store.list(BUCKET, revision=first.revision)
            assert refused.value.oldest == last.revision

    async def test_a_server_that_missed_changes_says_so_and_cuts_its_watchers_off(self, etcd: Etcd) -> None:
        async with relayed(etcd, "/missed") as (one, relay, other):
            await one.put(A, saying("one"))
            watch = other.watch(BUCKET, after=await other.up_to(one.revision))
            await relay.cut()
            for number in range(5):
                await one.put(A, saying(str(number)))
            await one.compact(one.revision)
            await relay.open()
            assert "compacted" in str(await asyncio.wait_for(other.wait_lost(), 60))
            with pytest.raises(SlowWatcher):
                await watch.next(timeout_s=60)
            row = await other.get(A)
            assert row is not None
            assert row.body == b"4"

    async def test_a_server_that_was_cut_off_for_a_while_catches_up(self, etcd: Etcd) -> None:
        async with relayed(etcd, "/cut") as (one, relay, other):
            watch = other.watch(BUCKET, after=other.revision)
            await relay.cut()
            written = [(await one.put(A, saying(str(number)))).revision for number in range(5)]
            await relay.open()
            heard: list[int] = []
            while len(heard) < 5:
                heard += [event.revision for event in await watch.next(timeout_s=60) or ()]
            assert heard == written


class TestRefusals:
    """Whoever starts a server is told what is wrong with its etcd, in one sentence."""

    async def refused(self, access: Access, *, words: str) -> None:
        """Check what is said after a while; where a slow machine has said nothing yet, after a longer one."""
        for patience_s in (2.0, 60.0):
            with pytest.raises(Unavailable) as refused:
                await open_etcd(replace(access, patience_s=patience_s))
            if words in str(refused.value):
                break
        assert words in str(refused.value)

    async def test_nobody_listens_there(self) -> None:
        await self.refused(at(f"127.0.0.1:{free_port()}"), words="cannot be reached")

    async def test_a_member_that_is_gone_is_passed_over(self, etcd: Etcd) -> None:
        gone = f"127.0.0.1:{free_port()}"
        async with opened(at(gone, etcd.member), prefix="/passed-over") as store:
            row = await store.put(A, saying("x"))
            assert await store.get(A) == row

    async def test_a_store_of_a_later_format_is_left_alone(self, etcd: Etcd) -> None:
        client, layout = EtcdClient(at(etcd.member)), Layout("/later")
        await client.call(TXN, TxnRequest(success=[put_op(layout.format, b"9")]))
        await client.close()
        with pytest.raises(Damaged, match="newer certwright"):
            await open_etcd(at(etcd.member), prefix="/later")

    async def test_what_no_certwright_wrote_is_named(self, etcd: Etcd) -> None:
        async with servers(etcd, 1, prefix="/strange") as (store,):
            async with asking(at(etcd.member)) as client:
                meta_key, _ = Layout("/strange").keys(A)
                await client.call(TXN, TxnRequest(success=[put_op(meta_key, b"{}")]))
            with pytest.raises(Damaged, match="ns/a of things cannot be read"):
                await store.get(A)

    async def test_users_and_passwords(self, tmp_path: Path) -> None:
        with running_etcd(tmp_path) as etcd:
            await asyncio.to_thread(administer, etcd, *add_user("root", "root"), ("enable", {}))
            access = replace(at(etcd.member), user="root", password="secret")
            await self.refused(replace(access, user=None), words="--etcd-user")
            await self.refused(replace(access, password="wrong"), words="password")
            async with opened(access) as store:
                row = await store.put(A, saying("x"))
                etcd.kill()
                await asyncio.to_thread(etcd.start)  # which forgets its tokens
                assert await store.get(A) == row
                await store.put(A, saying("y"))

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
            access = replace(at(etcd.member), user="cw", password="secret")
            async with opened(access) as store:
                await store.put(A, saying("x"))
                assert len((await store.list(BUCKET)).rows) == 1
            with pytest.raises(Unavailable, match="does not let the user"):
                await open_etcd(access, prefix="/elsewhere")

    async def test_certificates(self, tmp_path: Path) -> None:
        ca, stranger = trustme.CA(), trustme.CA()
        server, client = ca.issue_cert("127.0.0.1"), ca.issue_cert("client.test", common_name="client")
        other = stranger.issue_cert("client.test", common_name="client")
        pem = {
            "ca": ca.cert_pem.bytes(),
            "stranger": stranger.cert_pem.bytes(),
            "server.crt": server.cert_chain_pems[0].bytes(),
            "server.key": server.private_key_pem.bytes(),
            "client.crt": client.cert_chain_pems[0].bytes(),
            "client.key": client.private_key_pem.bytes(),
            "other.crt": other.cert_chain_pems[0].bytes(),
            "other.key": other.private_key_pem.bytes(),
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
            access = replace(
                at(etcd.member),
                tls=True,
                ca_file=tmp_path / "ca",
                cert_file=tmp_path / "client.crt",
                key_file=tmp_path / "client.key",
            )
            async with opened(access) as store:
                row = await store.put(A, saying("x"))
                assert await store.get(A) == row
            await self.refused(replace(access, ca_file=tmp_path / "stranger"), words="--etcd-cafile")
            foreign = replace(access, cert_file=tmp_path / "other.crt", key_file=tmp_path / "other.key")
            await self.refused(
                foreign, words="refuses our client certificate (bad certificate): --etcd-certf"
            )
            bare = replace(access, cert_file=None, key_file=None)
            await self.refused(bare, words="requires a client certificate: give --etcd-certfile")
            mixed = replace(access, key_file=tmp_path / "other.key")
            await self.refused(mixed, words="the key must be that of the certificate")
            await self.refused(replace(access, tls=False, ca_file=None), words="etcds://")
            await self.refused(replace(access, ca_file=tmp_path / "nowhere"), words="does not exist")
            await self.refused(replace(access, ca_file=tmp_path / "one.log"), words="PEM")


def administer(etcd: Etcd, *calls: tuple[str, dict[str, object]]) -> None:
    """What an administrator of etcd does, by its JSON gateway."""
    for path, body in calls:
        request = urllib.request.Request(f"http://{etcd.member}/v3/auth/{path}", json.dumps(body).encode())
        _ask(request, timeout=60).close()


def add_user(name: str, role: str) -> tuple[tuple[str, dict[str, object]], ...]:
    """The calls that make a user with the password `secret`, and give it a role that is new."""
    return (
        ("user/add", {"name": name, "password": "secret"}),
        ("role/add", {"name": role}),
        ("user/grant", {"user": name, "role": role}),
    )
