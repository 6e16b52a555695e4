"""The store alone, in process: durable creates, point reads, lists."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.rig import memory_mb, table
from certwright.kube.store.contract import Key, Store
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import open_etcd
from certwright.kube.store.memory import MemoryStore
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite

BUCKET = "secrets"
META, BODY = os.urandom(500), os.urandom(2_100)
LARGE = os.urandom(1 << 20)


def main() -> None:
    """Print all figures; the files lie in the folder for temporary files (`TMPDIR`)."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> None:
    store = await open_sqlite(folder / "store.db")
    writes = []
    for writers, rows in ((1, 3_000), (8, 16_000), (64, 32_000)):
        writes.append(["sqlite", str(writers), *await _creates(store, writers, rows)])
    writes.append(["memory", "64", *await _creates(MemoryStore(), 64, 64_000)])
    table(["creates of 2.6 KB, durable", "at once", "rows/s", "commits/s", "rows a commit"], writes)
    await store.close()
    reads = await open_sqlite(folder / "reads.db")
    await asyncio.gather(*(_create(reads, "small", number) for number in range(10_000)))
    for number in range(300):
        await reads.put(Key("large", "default", f"n{number}"), lambda _: (META, LARGE))
    table(["reads", "figure"], [*await _gets(reads), *await _lists(reads)])
    await reads.close()
    await _measure_etcd(folder)


async def _measure_etcd(folder: Path) -> None:
    """The same over an etcd of one member whose files lie in the folder, where one is installed."""
    program = shutil.which("etcd")
    if program is None:
        print("etcd is not installed here")
        return
    with running_etcd(program, folder) as (member, process):
        store = await open_etcd(Access((member,)), compact_every_s=0)
        writes = [
            ["etcd", str(writers), *await _creates(store, writers, rows)]
            for writers, rows in ((1, 1_000), (8, 4_000), (64, 8_000))
        ]
        table(["creates of 2.6 KB, durable", "at once", "rows/s", "commits/s", "rows a commit"], writes)
        print(f"etcd holds {memory_mb(process.pid):.0f} MB now")
        reads = [["gets by 1 reader, 1/s", await _gets_per_s(store, 1)]]
        reads += [["gets by 64 readers, 1/s", await _gets_per_s(store, 64)]]
        for number in range(300):
            await store.put(Key("large", "default", f"n{number}"), lambda _: (META, LARGE))
        table(["reads from etcd", "figure"], [*reads, *await _lists(store)])
        await store.close()
        print(f"etcd holds {memory_mb(process.pid):.0f} MB after 300 rows of 1 MB")


@contextmanager
def running_etcd(program: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """An etcd with one member over a folder: its address, and its process."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    client, peers = (f"http://127.0.0.1:{port}" for port in ports)
    flags = [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--max-request-bytes=4194304",
        "--logger=zap",
    ]
    with (folder / "etcd.log").open("wb") as log:
        process = subprocess.Popen([program, *flags], stdout=log, stderr=log)
    try:
        yield f"127.0.0.1:{ports[0]}", process
    finally:
        process.kill()
        process.wait()


async def _gets_per_s(store: Store, readers: int) -> str:
    keys = [row.key for row in (await store.list(BUCKET, limit=1_000, meta_only=True)).rows]
    left = iter(keys * 3)

    async def read() -> None:
        for key in left:
            await store.get(key)

    begun = time.perf_counter()
    await asyncio.gather(*(read() for _ in range(readers)))
    return f"{3 * len(keys) / (time.perf_counter() - begun):,.0f}"


async def _create(store: Store, prefix: str, number: int) -> None:
    # Names that do not come in order, as those of real objects.
    name = f"{prefix}-{number * 2_654_435_761 % 2**32:08x}"
    await store.put(Key(BUCKET, "default", name), lambda _: (META, BODY), expect=0)


async def _creates(store: Store, writers: int, rows: int) -> list[str]:
    numbers = iter(range(rows))

    async def write() -> None:
        for number in numbers:
            await _create(store, f"{writers}", number)

    before = _commits(store)
    begun = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(writers)))
    took = time.perf_counter() - begun
    made = _commits(store) - before
    return [
        f"{rows / took:,.0f}",
        f"{made / took:,.0f}" if made else "",
        f"{rows / made:.1f}" if made else "",
    ]


def _commits(store: Store) -> int:
    return store.commits if isinstance(store, SqliteStore) else 0


async def _gets(store: Store) -> list[list[str]]:
    keys = [row.key for row in (await store.list(BUCKET, limit=1_000, meta_only=True)).rows]
    begun = time.perf_counter()
    for _ in range(10):
        for key in keys:
            await store.get(key)
    return [["one row of 2.6 KB, µs", f"{(time.perf_counter() - begun) / (10 * len(keys)) * 1e6:.1f}"]]


async def _lists(store: Store) -> list[list[str]]:
    return [
        ["10,000 rows of 2.6 KB in pages of 500, ms", await _list_ms(store, BUCKET, limit=500)],
        ["the same, metadata only, ms", await _list_ms(store, BUCKET, limit=500, meta_only=True)],
        ["300 rows of 1 MB in pages of 4 MB, ms", await _list_ms(store, "large", max_bytes=4 << 20)],
        ["the same, metadata only, ms", await _list_ms(store, "large", meta_only=True)],
    ]


async def _list_ms(
    store: Store,
    bucket: str,
    *,
    limit: int | None = None,
    meta_only: bool = False,
    max_bytes: int | None = None,
) -> str:
    begun = time.perf_counter()
    after, revision, more = None, None, True
    while more:
        page = await store.list(
            bucket, limit=limit, after=after, revision=revision, meta_only=meta_only, max_bytes=max_bytes
        )
        after, revision, more = page.rows[-1].key[1:], page.revision, page.more
    return f"{(time.perf_counter() - begun) * 1e3:.1f}"


if __name__ == "__main__":
    main()
