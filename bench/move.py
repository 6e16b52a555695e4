"""Move a store from SQLite to etcd and back: time, and whether anything is lost or issued again.

    make bench ARGS=move
    make bench ARGS="move --number 10000"

Some certificates are issued, and their rows copied under other names and uids. Then `certwright backup` and
`certwright restore`, as processes of their own, into etcd (one member) and back; the rows are compared, and a
server with controllers runs on etcd in between.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.beside import session
from bench.issuance import create_certificate, make_issuers, wait_ready
from bench.rig import Daemon, cpu_s, daemon, table
from certwright import app
from certwright.app.encryption import new_seal
from certwright.app.stores import open_store, sqlite_path
from certwright.kube.apiserver.model.objects import at_revision
from certwright.kube.store.contract import Encode, Key, Row
from certwright.kube.store.sqlite.dump import dump_sqlite
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from support.etcd import running_etcd

NUMBER = 100_000
TEMPLATES = 20
# So little processor time between two looks is that of a server whose controllers have seen everything.
_LOOK_EVERY_S, _REST_S = 10.0, 0.3
_TOGETHER = 256
_COPIED = (CERTIFICATES.plural, CERTIFICATE_REQUESTS.plural, "secrets")
# Not in DNS names, which the certificates contain.
_NAME, _UID = re.compile(rb"fresh-\d+(?![\d.])"), re.compile(rb"[0-9a-f]{8}(?=-[0-9a-f]{4}-4)")


def main(options: Sequence[str] = ()) -> None:
    """Print the time of each step."""
    parser = argparse.ArgumentParser(prog="move")
    parser.add_argument("--number", type=int, default=NUMBER)
    number = parser.parse_args(options).number
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name, running_etcd(Path(name)) as etcd:
        source, etcd_data, restored = (Path(name) / folder for folder in ("one", "two", "three"))
        rows = [["rows written for the test", *_timed(fill, source, number)]]
        key = ("--encryption-key-file", str(source / "encryption.key"))
        on_etcd = ("--data-dir", str(etcd_data), "--store", etcd.url, *key)
        first, second = str(Path(name) / "first.backup"), str(Path(name) / "second.backup")
        before = asyncio.run(_digest(source, source))
        rows.append(["backup of SQLite", *_timed(run, "backup", "--data-dir", str(source), first)])
        rows.append(["restore into etcd", *_timed(run, "restore", *on_etcd, first)])
        rows.append(["server on etcd", *_timed(_serve, on_etcd)])
        rows.append(["backup of etcd", *_timed(run, "backup", *on_etcd, second)])
        rows.append(
            ["restore into SQLite", *_timed(run, "restore", "--data-dir", str(restored), *key, second)]
        )
        assert asyncio.run(_digest(restored, source)) == before, "rows differ"
        sizes = [Path(file).stat().st_size / 1e6 for file in (first, second)]
    table([f"{number:,} certificates", "seconds", "of processor, without etcd"], rows)
    print(
        f"\nbackups of {sizes[0]:.0f} and {sizes[1]:.0f} MB; certificates, requests and Secrets are identical"
    )


def _timed(work: Callable[..., None], *arguments: object) -> list[str]:
    begun, spent = time.perf_counter(), _spent_s()
    work(*arguments)
    return [f"{time.perf_counter() - begun:.1f}", f"{_spent_s() - spent:.1f}"]


def _spent_s() -> float:
    """Processor time of this process and of those that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run(*words: str) -> None:
    """Run a command of certwright."""
    subprocess.run([sys.executable, "-m", "certwright", *words], check=True)


def fill(data_dir: Path, number: int, algorithm: str = "ECDSA") -> None:
    """Write a store of so many issued certificates."""
    with daemon(data_dir=data_dir) as server:
        asyncio.run(make_issuers(server, has_label=True))
        asyncio.run(_issue(server, algorithm))
    asyncio.run(_copy(data_dir, number))


async def _issue(server: Daemon, algorithm: str) -> None:
    async with session(server) as client, asyncio.TaskGroup() as group:
        listing = await client.list(CERTIFICATES, "default")
        group.create_task(wait_ready(client, listing.resource_version, TEMPLATES))
        for n in range(TEMPLATES):
            await create_certificate(client, n, algorithm=algorithm)
    await asyncio.sleep(3)


async def _copy(data_dir: Path, number: int) -> None:
    """Write the rows of the certificates again and again, under other names."""
    options = app.ServeOptions(data_dir=data_dir)
    store = await open_store(options)
    models = [
        row
        for bucket in await _buckets(data_dir)
        for row in (await store.list(bucket)).rows
        if _NAME.match(row.key.name.encode())
    ]
    copies = _copies(models, number)
    while batch := list(itertools.islice(copies, _TOGETHER)):
        await asyncio.gather(*(store.put(row.key, _content(row), expect=0) for row in batch))
    await store.close()


async def _buckets(data_dir: Path) -> list[str]:
    options = app.ServeOptions(data_dir=data_dir)
    async with dump_sqlite(sqlite_path(options), new_seal(options)) as dump:
        buckets = {row.key.bucket async for page in dump.rows for row in page}
    return [bucket for bucket in buckets if bucket.rpartition("/")[2] in _COPIED]


def _copies(models: Sequence[Row], number: int) -> Iterator[Row]:
    by_name: dict[bytes, list[Row]] = {}
    for row in models:
        match = _NAME.match(row.key.name.encode())
        assert match is not None
        by_name.setdefault(match[0], []).append(row)
    groups = list(by_name.values())
    for n in range(TEMPLATES, number):
        name, uid = b"fresh-%d" % n, b"%08x" % n
        for row in groups[n % len(groups)]:
            meta, body = (_UID.sub(uid, _NAME.sub(name, text)) for text in (row.meta, row.body))
            key = Key(row.key.bucket, row.key.namespace, _NAME.sub(name, row.key.name.encode()).decode())
            yield Row(key, row.revision, meta, body)


def _content(row: Row) -> Encode:
    return lambda revision: (at_revision(row.meta, revision), row.body)


async def _digest(data_dir: Path, keys: Path) -> tuple[int, str]:
    """The number and the contents of the copied kinds' rows, whatever their revisions."""
    options = app.ServeOptions(data_dir=data_dir, encryption_key_file=keys / "encryption.key")
    total, count = hashlib.sha256(), 0
    async with dump_sqlite(sqlite_path(options), new_seal(options)) as dump:
        async for page in dump.rows:
            for row in page:
                if row.key.bucket.rpartition("/")[2] in _COPIED:
                    count += 1
                    total.update(repr((row.key, at_revision(row.meta, 1), row.body)).encode())
    return count, total.hexdigest()


def _serve(flags: Sequence[str]) -> None:
    """A server that looks at all certificates, and finds nothing to issue: the rows are compared later."""
    with daemon(*flags[2:], data_dir=Path(flags[1])) as server:
        spent = -1.0
        while cpu_s(server.pid) - spent > _REST_S:
            spent = cpu_s(server.pid)
            time.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    main()
