"""Size of certificates on etcd, with and without compression, and what compression costs.

    make bench ARGS=etcd_rows
    make bench ARGS="etcd_rows --number 200"

One etcd with one member, one server, certificates from CA issuers. What is counted: etcd's database after
compaction and defragmentation, less what it was before the certificates; the Events are deleted first, and
measured separately. A certificate is a Certificate, a CertificateRequest and a Secret.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from bench.beside import session
from bench.certificates import CA_ISSUERS
from bench.issuance import make_issuers, wait_ready
from bench.rig import Daemon, daemon, table
from certwright.kube.api import codec
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.compression import RowCompression
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
)
from certwright.kube.store.etcd.rows import PLAIN_FORMAT, Layout
from certwright.kube.store.etcd.store import DEFAULT_PREFIX
from certwright.resources.table import CERTIFICATES
from support.etcd import Etcd, running_etcd

NUMBER = 300
HEADINGS = ["key", "rows", "bytes in etcd each", "with Events", "of values", "Events' own values"]
_LAYOUT = Layout(DEFAULT_PREFIX)


def main(options: Sequence[str] = ()) -> None:
    """Print one row for each algorithm and format, and the cost of compression."""
    parser = argparse.ArgumentParser(prog="etcd_rows")
    parser.add_argument("--number", type=int, default=NUMBER)
    number = parser.parse_args(options).number
    rows, costs = [], list[str]()
    for algorithm in ("ECDSA", "RSA"):
        for is_plain in (True, False):
            with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
                rows.append(_measured(Path(name), algorithm, number, is_plain=is_plain, costs=costs))
    table(HEADINGS, rows)
    print("\n".join(["", *costs]))


def _measured(folder: Path, algorithm: str, number: int, *, is_plain: bool, costs: list[str]) -> list[str]:
    with running_etcd(folder) as etcd:
        if is_plain:
            asyncio.run(_write(etcd, put_op(_LAYOUT.format, PLAIN_FORMAT)))
        # Not sealed, so that the values can be read here: sealing adds 45 bytes to each.
        flags = ("--encrypt-secrets=false", "--store", etcd.url)
        with daemon(*flags, data_dir=folder / "data") as server:
            asyncio.run(make_issuers(server, has_label=True))
            before = asyncio.run(_in_use(etcd))
            asyncio.run(_issue(server, algorithm, number))
            time.sleep(3)  # Events follow
            values = asyncio.run(_values(etcd))
            with_events = asyncio.run(_in_use(etcd)) - before
            spans = [_LAYOUT.spans("events", None, None)[part] for part in (0, 1)]
            asyncio.run(_write(etcd, *(delete_op(span.begin, span.end) for span in spans)))
            size = asyncio.run(_in_use(etcd)) - before
    own = [
        value
        for bucket, bucket_values in values.items()
        if bucket.startswith(("cert-", "secr"))
        for value in bucket_values
    ]
    events = sum(map(len, values["events"]))
    if is_plain:
        costs += _costs(algorithm, own)
    label = "plain" if is_plain else "compressed"
    figures = (size, with_events, sum(map(len, own)), events)
    return [algorithm, label, *(f"{figure / number:,.0f}" for figure in figures)]


def _costs(algorithm: str, values: Sequence[bytes]) -> list[str]:
    compression = RowCompression()
    begun = time.process_time()
    stored = list(map(compression.compress, values))
    middle = time.process_time()
    assert list(map(compression.decompress, stored)) == list(values)
    times = (middle - begun, time.process_time() - middle)
    each = [f"{2e6 * spent / len(values):.1f} µs" for spent in times]
    return [f"{algorithm}: a row (two values) costs {each[0]} to compress and {each[1]} to decompress"]


async def _write(etcd: Etcd, *writes: object) -> None:
    client = EtcdClient(Access((etcd.member,)))
    await client.call(TXN, TxnRequest(success=writes))
    await client.close()


async def _values(etcd: Etcd) -> dict[str, list[bytes]]:
    """The values of the rows by their bucket."""
    client, values = EtcdClient(Access((etcd.member,))), defaultdict[str, list[bytes]](list)
    root = _LAYOUT.root
    for kv in (await client.call(RANGE, RangeRequest(key=root.begin, range_end=root.end))).kvs:
        if kv.key.startswith((_LAYOUT.meta, _LAYOUT.body)):
            values[kv.key[len(_LAYOUT.meta) :].split(b"\0")[0].decode()].append(kv.value)
    await client.close()
    return values


async def _in_use(etcd: Etcd) -> int:
    """The size of etcd's database after compaction and defragmentation."""
    client = EtcdClient(Access((etcd.member,)))
    revision = (await client.call(RANGE, RangeRequest(key=b"x"))).header.revision
    await client.call(COMPACT, CompactionRequest(revision=revision))
    await asyncio.sleep(2)  # etcd deletes in the background
    await asyncio.to_thread(etcd.maintain, "defragment")
    size = (await client.call(STATUS, StatusRequest())).db_size
    await client.close()
    return int(size)


async def _issue(server: Daemon, algorithm: str, number: int) -> None:
    """Issue so many certificates for two names each."""
    async with session(server) as client, asyncio.timeout(600), asyncio.TaskGroup() as group:
        listing = await client.list(CERTIFICATES, "default")
        group.create_task(wait_ready(client, listing.resource_version, number, "web"))
        for n in range(number):
            spec = {
                "secretName": f"web-{n}-tls",
                "dnsNames": [f"web-{n}.example.com", f"www.web-{n}.example.com"],
                "privateKey": {"algorithm": algorithm},
                "issuerRef": {"name": f"own-ca-{n % CA_ISSUERS}"},
            }
            meta = {"name": f"web-{n}", "namespace": "default"}
            await client.create(CERTIFICATES, codec.from_dict(CERTIFICATES, {"metadata": meta, "spec": spec}))


if __name__ == "__main__":
    main()
