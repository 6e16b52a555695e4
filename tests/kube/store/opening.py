"""Stores of servers on an etcd, and in files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.store import EtcdStore, open_etcd
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite


@asynccontextmanager
async def opened(access: Access, **options: Any) -> AsyncIterator[EtcdStore]:
    """A store, closed in the end; harmless when it has been closed before."""
    store = await open_etcd(access, compact_every_s=0, **options)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_file(path: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    """A store in a file, closed in the end; harmless when it has been closed before."""
    store = await open_sqlite(path, **options)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def asking(access: Access) -> AsyncIterator[EtcdClient]:
    """A client of etcd itself, closed in the end."""
    client = EtcdClient(access)
    try:
        yield client
    finally:
        await client.close()
