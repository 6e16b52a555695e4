"""Stores whose bodies are on a second etcd, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from certwright.kube.store.contract import Compacted
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.messages import RANGE, TXN, RangeRequest, TxnRequest, delete_op, put_op
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.etcd.store import EtcdStore, open_etcd
from conformance.store_words import BUCKET
from support.etcd import Etcd


def access_to(etcd: Etcd, patience_s: float = 60.0) -> Access:
    """How an etcd is spoken to, on a machine that may be slow."""
    return Access((etcd.member,), patience_s=patience_s)


class Pair:
    """A main etcd, and one that has the bodies of `buckets`, below a prefix."""

    def __init__(self, main: Etcd, other: Etcd, prefix: str, *buckets: str) -> None:
        self.main = main
        self.other = other
        self.prefix = prefix
        self.buckets = buckets or (BUCKET,)
        self.layout = Layout(prefix)

    def overrides(self, patience_s: float = 60.0) -> dict[str, Access]:
        """The option."""
        return {bucket: access_to(self.other, patience_s) for bucket in self.buckets}

    async def open(self, *, patience_s: float = 60.0, **options: Any) -> EtcdStore:
        """The store of one more server."""
        options.setdefault("overrides", self.overrides(patience_s))
        access = access_to(self.main, patience_s)
        return await open_etcd(access, prefix=self.prefix, **{"compact_every_s": 0} | options)

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[EtcdStore]:
        """As `open`, closed in the end."""
        store = await self.open(**options)
        try:
            yield store
        finally:
            await store.close()

    async def bodies(self, where: Etcd | None = None) -> list[bytes]:
        """The `b/` keys, without their prefix; on the other etcd."""
        return await self._keys(where or self.other, self.layout.body)

    async def queue(self) -> list[bytes]:
        """The names that are queued for the sweep."""
        return await self._keys(self.other, self.layout.queue)

    async def _keys(self, etcd: Etcd, prefix: bytes) -> list[bytes]:
        client = EtcdClient(access_to(etcd))
        request = RangeRequest(key=prefix, range_end=prefix[:-1] + b"0", keys_only=True)
        pairs = (await client.call(RANGE, request)).kvs
        await client.close()
        return [kv.key[len(prefix) :] for kv in pairs]

    async def wipe(self, etcd: Etcd, *keys: bytes) -> None:
        """Delete keys, or all below the prefix, as `etcdctl del` does."""
        client, root = EtcdClient(access_to(etcd)), self.layout.root
        deletions = list(map(delete_op, keys)) or [delete_op(root.begin, root.end)]
        await client.call(TXN, TxnRequest(success=deletions))
        await client.close()

    async def put(self, key: bytes, value: bytes) -> None:
        """Write a key of the other etcd."""
        client = EtcdClient(access_to(self.other))
        await client.call(TXN, TxnRequest(success=[put_op(key, value)]))
        await client.close()


async def sweep(store: EtcdStore) -> int:
    """Begin an epoch, have the main etcd compacted past it, and sweep; the number of deleted bodies."""
    await store._sweep.look()
    return await turn(store) + await turn(store)


async def turn(store: EtcdStore) -> int:
    """Have the main etcd compacted, sweep up to the present epoch, and begin the next one."""
    with suppress(Compacted):
        await store.compact(await store.up_to(await newest(store)))
    return await store._sweep.look()


async def newest(store: EtcdStore) -> int:
    """The revision of the main etcd."""
    answer = await store._client.call(RANGE, RangeRequest(key=b"x"))
    return int(answer.header.revision)
