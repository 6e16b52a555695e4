"""Overrides: buckets whose bodies are stored on another etcd (`--etcd-servers-overrides`).

Only the bodies are there. The `m/` key of each row, and with it the order of all writes, their conditions and
events, stays on the main etcd. Below the same prefix on the other etcd:

- `b/<bucket>␀<namespace>␀<name>␀<writer>`: the body that one write has put. It is never replaced by another
  content; the `m/` value on the main etcd refers to it, because it names the writer;
- `q/<bucket>␀<namespace>␀<name>`: the queue of names that were written: some of their bodies may be unused;
- `contents`: whose bodies these are (`override_identity`).

A write puts its body and the queue entry first, and then the row on the main etcd. That second transaction is
on the condition of the *epoch* known before the first one: a write that was delayed cannot refer to a body
that was swept in the meantime (`override_sweep`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from certwright.kube.store.contract import DamagedRow, Full, Key, Lost, Unavailable
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.messages import (
    MOST_OPERATIONS,
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    at_version,
    delete_op,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import Layout


class Reference(NamedTuple):
    """A body on another etcd: the row's key, and the write that has put it."""

    key: Key
    writer: bytes


@dataclass(slots=True)
class Outcome:
    """What became of a write."""

    written: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Another etcd, and the buckets whose bodies it has."""

    client: EtcdClient
    buckets: tuple[str, ...]

    @property
    def name(self) -> str:
        """The same for all servers, whatever the address of this etcd."""
        return ",".join(self.buckets)


class Overrides:
    """The bodies of overridden buckets. `accesses`: the etcd of each of them; most stores have none."""

    def __init__(self, layout: Layout, accesses: Mapping[str, Access]) -> None:
        self._layout = layout
        self.places = tuple(
            Place(EtcdClient(access), tuple(sorted(name for name in accesses if accesses[name] == access)))
            for access in dict.fromkeys(accesses.values())
        )
        """The other etcds."""
        self._places = {bucket: place for place in self.places for bucket in place.buckets}
        self._written = dict[bytes, bytes]()  # bodies of the writes under way here
        self._main_is_full = False
        layout.overridden = frozenset(accesses)

    def __contains__(self, bucket: str) -> bool:
        return bucket in self._places

    @property
    def clients(self) -> list[EtcdClient]:
        """The clients of the other etcds."""
        return [place.client for place in self.places]

    @property
    def trouble(self) -> str:
        """Why the last attempt to reach one of them failed; empty once one has succeeded."""
        return next(filter(None, (client.trouble for client in self.clients)), "")

    async def check(self) -> None:
        """Return if all of them answer, and have what this store has put there. Raises `Unavailable`."""
        for place in self.places:
            await self._check(place)

    async def _check(self, place: Place) -> None:
        answer = await place.client.call(RANGE, RangeRequest(key=self._layout.contents))
        if not answer.kvs:
            place.client.lose(f"was emptied below {self._layout.prefix}")
            raise Lost(str(place.client.lost))

    # -- writing

    @asynccontextmanager
    async def stored(self, key: Key, writer: bytes, body: bytes, main: EtcdClient) -> AsyncIterator[Outcome]:
        """Store the body of a write, which MUST happen inside the block, on conditions made before it, by
        `main`. Of other buckets nothing is stored. Raises `Unavailable`, `TooLarge`."""
        outcome = Outcome()
        if key.bucket not in self._places:
            yield outcome
            return
        kept = self._written[writer] = self._layout.close_body(key, body)
        body_key, client = self._layout.content_key(key, writer), self._places[key.bucket].client
        writes = [put_op(body_key, kept), put_op(self._queue_key(key), b"")]
        # If it exists, the response to an earlier attempt was lost. An attempt that arrives late changes
        # nothing: the body may have been re-sealed since.
        request = TxnRequest(compare=[at_version(body_key, 0)], success=writes)
        try:
            if self._main_is_full:
                await self._check_room(main)
            await client.call(TXN, request)
            retries = main.retries
            yield outcome
            self._main_is_full = False
            # If an attempt of the write was repeated, the first one may still be on its way: see the sweep.
            if not outcome.written and main.retries == retries:
                with suppress(Unavailable):
                    await client.call(TXN, TxnRequest(success=[delete_op(body_key)]))
        except Full:
            self._main_is_full = True  # or the other one; then the check takes a moment
            raise
        finally:
            del self._written[writer]

    async def _check_room(self, main: EtcdClient) -> None:
        """Raise `Full` if the main etcd still refuses writes; else bodies would gather that no row refers to,
        and that are not swept, because that begins with a write."""
        never, write = at_version(self._layout.format, 0), put_op(self._layout.tick, b"")
        await main.call(TXN, TxnRequest(compare=[never], success=[write]))

    async def announce_deletion(self, key: Key) -> None:
        """Put the queue entry of a row that is deleted next, on conditions made before. Raises
        `Unavailable`."""
        if (place := self._places.get(key.bucket)) is not None:
            await place.client.call(TXN, TxnRequest(success=[put_op(self._queue_key(key), b"")]))

    def _queue_key(self, key: Key) -> bytes:
        return self._layout.queue + "\0".join(key).encode()

    # -- reading

    async def read(self, references: Collection[Reference]) -> list[bytes | None]:
        """The bodies as stored; None: it does not exist. Raises `Unavailable`."""
        if not references:
            return []
        bodies = {
            reference.writer: kept
            for reference in references
            if (kept := self._written.get(reference.writer)) is not None
        }
        missing = [reference for reference in references if reference.writer not in bodies]
        batches = [
            (place.client, batch)
            for place in self.places
            for batch in _batches(
                [reference for reference in missing if reference.key.bucket in place.buckets]
            )
        ]
        for read in await asyncio.gather(*(self._read_some(*batch) for batch in batches)):
            bodies |= read
        return [bodies.get(reference.writer) for reference in references]

    async def _read_some(self, client: EtcdClient, some: Sequence[Reference]) -> dict[bytes, bytes]:
        answers = await self.entries(client, some)
        return {
            reference.writer: kv.value for reference, kv in zip(some, answers, strict=True) if kv is not None
        }

    async def entries(self, client: EtcdClient, some: Sequence[Reference]) -> list[Any]:
        """The keys and values of some bodies, 100 at most; None: it does not exist. Raises `Unavailable`."""
        reads = [read_op(self._layout.content_key(*reference)) for reference in some]
        answer = await client.call(TXN, TxnRequest(success=reads))
        return [next(iter(response.response_range.kvs), None) for response in answer.responses]

    def client_of(self, bucket: str) -> EtcdClient:
        """The client of the etcd that has the bodies of an overridden bucket."""
        return self._places[bucket].client

    async def missing(self, key: Key) -> DamagedRow:
        """The error for a row whose body does not exist. Raises `Lost` if nothing of this store does."""
        place = self._places[key.bucket]
        await self._check(place)
        return DamagedRow(key, f"its contents are missing on etcd at {place.client.access}")

    async def close(self) -> None:
        """Close the connections."""
        for client in self.clients:
            await client.close()


def _batches(references: Sequence[Reference]) -> Iterator[Sequence[Reference]]:
    for begin in range(0, len(references), MOST_OPERATIONS):
        yield references[begin : begin + MOST_OPERATIONS]
