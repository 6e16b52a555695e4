"""Lists on etcd: processor time of etcd and of the server for whole lists and for pages of 500.

    make bench ARGS=etcd_lists
    make bench ARGS="etcd_lists --objects 12500 25000 50000 100000"

One etcd with one member; ConfigMaps of 100 bytes of data. Linear is: twice the objects cost twice the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import ssl
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.beside import session
from bench.load import Target
from bench.rig import Daemon, cpu_s, daemon, table
from bench.store import running_etcd
from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.store.contract import Key
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.messages import COMPACT, TXN, CompactionRequest, TxnRequest, read_op
from certwright.kube.store.etcd.rows import Layout, Meta, new_writer
from certwright.kube.store.etcd.store import DEFAULT_PREFIX

OBJECTS = (25_000, 100_000)
BUCKET = "configmaps"
PATH = "/api/v1/namespaces/default/configmaps"
_ROWS_A_WRITE = 40
HEADINGS = ["objects", "list", "seconds", "CPU s of etcd", "CPU s of the server", "both", "requests"]


def main(options: Sequence[str] = ()) -> None:
    """Print one row for each size and kind of list."""
    parser = argparse.ArgumentParser(prog="etcd_lists")
    parser.add_argument("--objects", type=int, nargs="+", default=OBJECTS)
    sizes = sorted(parser.parse_args(options).objects)
    program = shutil.which("etcd")
    if program is None:
        print("etcd is not installed here")
        return
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name:
        folder = Path(name)
        with (
            running_etcd(program, folder) as (member, process),
            daemon("--store", f"etcd://{member}", "--controllers", "", data_dir=folder / "data") as server,
        ):
            asyncio.run(_seed(server))
            present = 1
            for size in sizes:
                asyncio.run(_fill(member, present, size))
                present = size
                for what, limit in (("whole", 0), ("pages of 500", 500)) * 2:
                    rows.append([f"{size:,}", what, *asyncio.run(_measure(server, process.pid, size, limit))])
    table(HEADINGS, rows)


async def _seed(server: Daemon) -> None:
    """One object made through the API, whose row the others copy."""
    async with session(server) as client:
        made = ConfigMap(metadata=ObjectMeta(name="n-00000000", namespace="default"), data={"x": "y" * 100})
        await client.create(CONFIG_MAPS, made)


async def _fill(member: str, present: int, size: int) -> None:
    """Write rows `present` to `size` in large transactions, past the server."""
    client, layout = EtcdClient(Access((member,))), Layout(DEFAULT_PREFIX)
    meta_key, body_key = layout.keys(Key(BUCKET, "default", "n-00000000"))
    answer = await client.call(TXN, TxnRequest(success=[read_op(meta_key), read_op(body_key)]))
    meta_kv, body_kv = (response.response_range.kvs[0] for response in answer.responses)
    model, revision = layout.row(meta_kv, body_kv.value), 0
    for begin in range(present, size, _ROWS_A_WRITE):
        writes = []
        for number in range(begin, min(begin + _ROWS_A_WRITE, size)):
            # Names that do not come in order, as those of real objects.
            name = f"n-{number * 2_654_435_761 % 2**32:08x}"
            meta = model.meta.replace(b"n-00000000", name.encode())
            pieces = Meta(new_writer(), meta.split(b"%d" % model.revision))
            writes += layout.put_ops(Key(BUCKET, "default", name), pieces, model.body)
        revision = (await client.call(TXN, TxnRequest(success=writes))).header.revision
    await client.call(COMPACT, CompactionRequest(revision=revision))
    await client.close()


async def _measure(server: Daemon, etcd_pid: int, size: int, limit: int) -> list[str]:
    """Read all objects once: in one request, or page after page."""
    context = ssl.create_default_context(cafile=server.ca)
    target = Target(server.address, context, token=server.token_file.read_text().strip(), path=PATH)
    begun, etcd, own = time.perf_counter(), cpu_s(etcd_pid), cpu_s(server.pid)
    count, requests, query = 0, 0, f"?limit={limit}" if limit else ""
    async with target.connections(1) as (connection,):
        while True:
            status = await connection.ask(target.get(query=query))
            assert status == 200, connection.body
            page = json.loads(connection.text())
            count, requests = count + len(page["items"]), requests + 1
            if not (token := page["metadata"].get("continue")):
                break
            query = f"?limit={limit}&continue={token}"
    assert count >= size, count
    seconds = time.perf_counter() - begun
    etcd, own = cpu_s(etcd_pid) - etcd, cpu_s(server.pid) - own
    return [f"{figure:.2f}" for figure in (seconds, etcd, own, etcd + own)] + [str(requests)]


if __name__ == "__main__":
    main()
