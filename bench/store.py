"""The stores alone, in process: durable creates, gets, lists. The files lie in the folder for temporary files
(`TMPDIR`); etcd, with one member, is measured where one is installed."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.rig import memory_mb, table
from certwright.kube.store.contract import Key, Store
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import open_etcd
from certwright.kube.store.memory import MemoryStore
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite
from support.etcd import running_etcd

META, BODY = os.urandom(500), os.urandom(2_100)
LARGE = os.urandom(1 << 20)
WRITERS = ((1, 1_000), (8, 4_000), (64, 16_000))
"""How many write at the same time, and how many rows."""
HEADINGS = ["creates of 2.6 KB", "at once", "rows/s", "commits/s", "rows a commit"]


async def _measure(folder: Path, share: float) -> None:
    store = await open_sqlite(folder / "store.db")
    writes = [await _creates("sqlite", store, writers, int(rows * share)) for writers, rows in WRITERS]
    writes.append(await _creates("memory", MemoryStore(), 64, int(64_000 * share)))
    table(HEADINGS, writes)
    table(["reads from sqlite", "figure"], [*await _gets(store), *await _lists(store, int(300 * share))])
    await store.close()
    if not shutil.which("etcd"):
        print("etcd is not installed")
        return
    with running_etcd(folder) as etcd:
        remote = await open_etcd(Access((etcd.member,)), compact_every_s=0)
        table(HEADINGS, [await _creates("etcd", remote, *case) for case in WRITERS[: 2 if share < 1 else 3]])
        print(f"etcd's memory: {memory_mb(etcd.pid):.0f} MB\n")
        rows = [*await _gets(remote), *await _lists(remote, int(300 * share))]
        table(["reads from etcd", "figure"], rows)
        await remote.close()


async def _creates(name: str, store: Store, writers: int, rows: int) -> list[str]:
    numbers = iter(range(rows))

    async def write() -> None:
        for number in numbers:
            # Names that do not come in order, as those of real objects.
            key = Key("secrets", "default", f"{writers}-{number * 2_654_435_761 % 2**32:08x}")
            await store.put(key, lambda _: (META, BODY), expect=0)

    before, begun = store.commits if isinstance(store, SqliteStore) else 0, time.perf_counter()
    await asyncio.gather(*(write() for _ in range(writers)))
    took = time.perf_counter() - begun
    cells = [name, str(writers), f"{rows / took:,.0f}"]
    if not isinstance(store, SqliteStore):
        return [*cells, "", ""]
    commits = store.commits - before
    return [*cells, f"{commits / took:,.0f}", f"{rows / commits:.1f}"]


async def _gets(store: Store) -> list[list[str]]:
    keys = [row.key for row in (await store.list("secrets", limit=1_000, meta_only=True)).rows]
    cells = []
    for readers in (1, 64):
        left = iter(keys * 3)

        async def read(left: Iterator[Key] = left) -> None:
            for key in left:
                await store.get(key)

        begun = time.perf_counter()
        await asyncio.gather(*(read() for _ in range(readers)))
        rate = 3 * len(keys) / (time.perf_counter() - begun)
        cells.append([f"gets of 2.6 KB, {readers} at once, 1/s", f"{rate:,.0f}"])
    return cells


async def _lists(store: Store, large: int) -> list[list[str]]:
    for number in range(large):
        await store.put(Key("large", "default", f"n{number}"), lambda _: (META, LARGE))
    rows = []
    for what, bucket, limit, max_bytes in (
        ("all rows of 2.6 KB in pages of 500", "secrets", 500, None),
        (f"{large} rows of 1 MB in pages of 4 MB", "large", None, 4 << 20),
    ):
        for meta_only in (False, True):
            begun, after, revision, more, count = time.perf_counter(), None, None, True, 0
            while more:
                page = await store.list(
                    bucket,
                    limit=limit,
                    after=after,
                    revision=revision,
                    meta_only=meta_only,
                    max_bytes=max_bytes,
                )
                after, revision, more = page.rows[-1].key[1:], page.revision, page.more
                count += len(page.rows)
            took_ms = (time.perf_counter() - begun) * 1e3
            label = f"{what}{', metadata only' if meta_only else ''}, ms ({count:,} rows)"
            rows.append([label, f"{took_ms:.1f}"])
    return rows


def main(arguments: Sequence[str] = ()) -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(prog="store", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows, for a first look: 0.1")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        asyncio.run(_measure(Path(folder), options.share))


if __name__ == "__main__":
    main(sys.argv[1:])
