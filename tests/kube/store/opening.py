"""Stores of servers on an etcd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import DEFAULT_PREFIX, EtcdStore, open_etcd


@asynccontextmanager
async def opened(access: Access, *, prefix: str = DEFAULT_PREFIX) -> AsyncIterator[EtcdStore]:
    """A store, closed in the end; harmless when it has been closed before."""
    store = await open_etcd(access, prefix=prefix, compact_every_s=0)
    try:
        yield store
    finally:
        await store.close()
