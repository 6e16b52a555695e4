"""etcd with many certificates in operation: its database, which is not defragmented, and its memory.

    make bench ARGS=etcd_capacity
    make bench ARGS="etcd_capacity --number 20000 --algorithm RSA"
    make bench ARGS="etcd_capacity --number 10000 --override"

One etcd with one member; the store is filled as by `move`. Then a quarter of all rows is written again, in
random order, and etcd compacted, six times: as renewals write them, and until the database no longer grows.
What renewals leave free in a page is used again only where a whole page becomes free.

With `--override` a second etcd has the contents of Secrets and CertificateRequests. There a row that is
written again gets another key, and the old one is swept.

The memory is that of etcd after a start. In operation up to 100,000 requests are added (`--snapshot-count`),
which it keeps for members that lag; those of the fill, many rows in each, would distort the figure.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.move import fill, run
from bench.rig import table
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.messages import (
    COMPACT,
    RANGE,
    STATUS,
    TXN,
    CompactionRequest,
    RangeRequest,
    StatusRequest,
    TxnRequest,
    delete_op,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.etcd.store import DEFAULT_PREFIX
from support.etcd import Etcd, running_etcd

NUMBER = 50_000
HEADINGS = [
    "certificates",
    "etcd",
    "",
    "database, kB each",
    "of it in use",
    "memory, kB each",
    "mapped, kB each",
]
_ROUNDS, _PART = 6, 4
_ROWS_A_WRITE = 40
# etcd compacts in the background, and gives memory back to the system within two minutes.
_COMPACTED_S, _RESTED_S = 8, 150
_LAYOUT = Layout(DEFAULT_PREFIX)
_OVERRIDDEN = ("/secrets", "cert-manager.io/certificaterequests")


def main(options: Sequence[str] = ()) -> None:
    """Print one row for each state of the store."""
    parser = argparse.ArgumentParser(prog="etcd_capacity")
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--algorithm", choices=("ECDSA", "RSA"), default="ECDSA")
    parser.add_argument("--override", action="store_true")
    chosen = parser.parse_args(options)
    number, rows = chosen.number, list[list[str]]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="certwright-bench-")))
        etcds = {}
        for name in ("main", "other") if chosen.override else ("main",):
            (folder / name).mkdir()
            running = running_etcd(folder / name, flags=("--snapshot-count=100",))
            etcds[name] = stack.enter_context(running)
        _restore(folder, etcds, number, chosen.algorithm)
        states = [f"{done}/{_PART} of the rows written again" for done in range(1, _ROUNDS + 1)]
        for what in ("restored", *states):
            if what != "restored":
                asyncio.run(_renew(**etcds))
            rows += [asyncio.run(_state(name, etcd, number, what)) for name, etcd in etcds.items()]
        for etcd in etcds.values():
            etcd.kill()
            etcd.start()
        time.sleep(_RESTED_S)
        for name, etcd in etcds.items():
            memory = [f"{part / number:.1f}" for part in _resident_kb(etcd.pid)]
            rows.append([*asyncio.run(_state(name, etcd, number, "etcd started again"))[:-2], *memory])
            etcd.maintain("defragment")
            rows.append(asyncio.run(_state(name, etcd, number, "defragmented")))
    table(HEADINGS, rows)


def _restore(folder: Path, etcds: dict[str, Etcd], number: int, algorithm: str) -> None:
    """Fill the store from certificates that were issued on SQLite."""
    source, target, backup = (folder / part for part in ("one", "two", "backup"))
    fill(source, number, algorithm)
    run("backup", "--data-dir", str(source), str(backup))
    flags = ["--store", etcds["main"].url, "--encryption-key-file", str(source / "encryption.key")]
    if other := etcds.get("other"):
        overrides = (f"{resource}#http://{other.member}" for resource in _OVERRIDDEN)
        flags += ["--etcd-servers-overrides", ",".join(overrides)]
    run("restore", "--data-dir", str(target), *flags, str(backup))


async def _state(name: str, etcd: Etcd, number: int, what: str) -> list[str]:
    client = EtcdClient(Access((etcd.member,)))
    status = await client.call(STATUS, StatusRequest())
    await client.close()
    sizes = (f"{size / number / 1_000:.2f}" for size in (status.db_size, status.db_size_in_use))
    return [f"{number:,}", name, what, *sizes, "", ""]


def _resident_kb(pid: int) -> tuple[float, float]:
    """The resident memory of a process in kB (10^3 bytes): its own, and that of mapped files."""
    status = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    own, files = (int(status[field].split()[0]) * 1.024 for field in ("RssAnon", "RssFile"))
    return own, files


async def _renew(main: Etcd, other: Etcd | None = None) -> None:
    """Write a part of the rows again, with other bytes of the same length, and compact."""
    await _renew_rows(main)
    if other is not None:
        await _renew_bodies(other)
    await asyncio.sleep(_COMPACTED_S)


async def _renew_rows(etcd: Etcd) -> None:
    client = EtcdClient(Access((etcd.member,)))
    skip, span = len(_LAYOUT.meta), _LAYOUT.root
    names = [
        kv.key[skip:]
        for kv in (
            await client.call(RANGE, RangeRequest(key=span.begin, range_end=span.end, keys_only=True))
        ).kvs
        if kv.key.startswith(_LAYOUT.meta)
    ]
    random.shuffle(names)
    del names[len(names) // _PART :]
    for at in range(0, len(names), _ROWS_A_WRITE):
        keys = [
            part + name for name in names[at : at + _ROWS_A_WRITE] for part in (_LAYOUT.meta, _LAYOUT.body)
        ]
        responses = (await client.call(TXN, TxnRequest(success=list(map(read_op, keys))))).responses
        kvs = [kv for response in responses for kv in response.response_range.kvs]
        writes = [put_op(kv.key, kv.value[:-8] + os.urandom(8)) for kv in kvs]
        revision = (await client.call(TXN, TxnRequest(success=writes))).header.revision
    await client.call(COMPACT, CompactionRequest(revision=revision))
    await client.close()


async def _renew_bodies(etcd: Etcd) -> None:
    client, begin = EtcdClient(Access((etcd.member,))), _LAYOUT.body
    request = RangeRequest(key=begin, range_end=begin[:-1] + b"0", keys_only=True)
    keys = [kv.key for kv in (await client.call(RANGE, request)).kvs]
    random.shuffle(keys)
    del keys[len(keys) // _PART :]
    queue = {key: _LAYOUT.queue + key[len(begin) : -9] for key in keys}
    for at in range(0, len(keys), _ROWS_A_WRITE):
        some = keys[at : at + _ROWS_A_WRITE]
        responses = (await client.call(TXN, TxnRequest(success=list(map(read_op, some))))).responses
        kvs = [kv for response in responses for kv in response.response_range.kvs]
        bodies = [put_op(kv.key[:-8] + os.urandom(8), kv.value[:-8] + os.urandom(8)) for kv in kvs]
        entries = [put_op(queue[key], b"") for key in some]
        await client.call(TXN, TxnRequest(success=[*bodies, *entries]))
    for at in range(0, len(keys), _ROWS_A_WRITE):
        some = keys[at : at + _ROWS_A_WRITE]
        deletions = [delete_op(deleted_key) for key in some for deleted_key in (key, queue[key])]
        revision = (await client.call(TXN, TxnRequest(success=deletions))).header.revision
    await client.call(COMPACT, CompactionRequest(revision=revision))
    await client.close()


if __name__ == "__main__":
    main()
