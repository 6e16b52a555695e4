"""Make a compression dictionary for rows in etcd from rows of certificates (not a benchmark).

    python -m bench.row_dictionary FILE        needs `make pebble` and Debian's bind9

Issues certificates from CA issuers, from Pebble and by itself, with random names, and trains on the rows. The
dictionary of a format never changes (`kube/store/etcd/compression.py`): this is for the next one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zstandard import train_dictionary

from bench import acme, certificates
from bench.certificates import Bench, ready
from certwright import app
from certwright.acme.solvers.http01 import Responder
from certwright.kube.api import codec
from certwright.kube.client.local import LocalTransport
from certwright.kube.client.rest import Client
from certwright.kube.store.etcd.compression import without_base64
from certwright.kube.util.http_messages import Request
from certwright.resources.table import CERTIFICATES

SIZE = 16 * 1024
EACH = 60
_ALGORITHMS = ("ECDSA", "RSA", "Ed25519")
_LISTS = (
    "/apis/cert-manager.io/v1/certificates",
    "/apis/cert-manager.io/v1/certificaterequests",
    "/apis/acme.cert-manager.io/v1/orders",
    "/api/v1/secrets",
    "/api/v1/events",
    "/apis/coordination.k8s.io/v1/leases",
)
# So that the dictionary contains no part of a key.
_KEY = re.compile(r'"(tls\.key|key)":"([^"]{60})[^"]*([^"]{44})"')


async def issue(bench: Bench, issuer: dict[str, str], number: int) -> None:
    """Issue certificates of all algorithms, half of them applied with kubectl. Their random names are in the
    zone of the benchmarks' BIND."""
    made = [secrets.token_hex(random.randint(3, 8)) for _ in range(number)]
    transport = LocalTransport(bench.counted.handle, app.ADMIN)
    kubectl = Client(transport, user_agent="kubectl-client-side-apply/v1")
    clients = itertools.cycle((bench.client, kubectl))
    algorithms = itertools.cycle(_ALGORITHMS[:2] if issuer["name"] == "http-01" else _ALGORITHMS)

    async def begin() -> None:
        for name, client, algorithm in zip(made, clients, algorithms, strict=False):
            spec: dict[str, Any] = {
                "secretName": f"{name}-tls",
                "dnsNames": [f"{name}.example.org", f"www.{name}.example.org"][: random.choice((1, 2))],
                "privateKey": {"algorithm": algorithm, "rotationPolicy": "Always"},
                "issuerRef": issuer,
            }
            meta: dict[str, Any] = {"name": name, "namespace": "default"}
            if client is kubectl:
                applied = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate"}
                text = json.dumps({**applied, "metadata": {"annotations": {}, **meta}, "spec": spec})
                meta["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": f"{text}\n"}
            await client.create(CERTIFICATES, codec.from_dict(CERTIFICATES, {"metadata": meta, "spec": spec}))

    await ready(bench, set(made).__contains__, number, begin)
    await asyncio.sleep(1)  # Events follow


async def rows(bench: Bench) -> list[bytes]:
    """The rows, each in its two parts."""
    parts = list[bytes]()
    for path in _LISTS:
        response = await bench.counted.api.handle(Request("GET", path, {}, b"", app.ADMIN))
        chunks = [response.body] if response.stream is None else [chunk async for chunk in response.stream]
        for item in json.loads(b"".join(chunks))["items"]:
            meta = json.dumps(item.pop("metadata"), separators=(",", ":"))
            body = json.dumps(item, separators=(",", ":"))
            parts += [meta.encode(), _KEY.sub(r'"\1":"\2\3"', body[1:-1]).encode()]
    return parts


async def from_cas() -> list[bytes]:
    """Rows of certificates from CA issuers and self-signed ones."""
    async with certificates.running() as bench:
        await certificates.make_issuers(bench)
        for n in range(certificates.CA_ISSUERS):
            await issue(bench, {"name": f"ca-{n}"}, EACH // 5)
        await issue(bench, {"name": "root", "kind": "ClusterIssuer", "group": "cert-manager.io"}, EACH)
        return await rows(bench)


async def from_acme() -> list[bytes]:
    """Rows of certificates from an ACME server."""
    with acme.neighbours(acme.Measurement("http-01", "http", 0, waits=acme.SHORT)) as (pebble, bind):
        responder, calls = Responder(), Counter[str]()
        await responder.listen("127.0.0.1", pebble.http_port)
        async with acme.certwright(pebble, bind, responder, calls) as bench:
            await acme.Scene(pebble, bind, responder, bench, calls).make_issuers()
            await issue(bench, {"name": "http-01", "kind": "ClusterIssuer"}, EACH)
            acme_rows = await rows(bench)
        await responder.close()
    return acme_rows


def samples() -> Iterator[bytes]:
    """All rows, in random order."""
    all_rows = [*app.run(from_cas()), *app.run(from_acme())]
    random.shuffle(all_rows)
    yield from map(without_base64, all_rows)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(train_dictionary(SIZE, list(samples())).as_bytes())
