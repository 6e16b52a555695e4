"""What a certificate from a CA issuer costs: time, processor, writes.

One process holds API server, durable SQLite store and controllers, wired as `certwright serve` wires them.
With `--mass 300 3000` so many Certificates exist before the controllers start, in a process of their own;
printed is when the first, the median and the last is issued and then renewed, and how long a new Certificate
takes that is created meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.rig import Daemon, controllers, cpu_s, daemon, memory_mb, percentile, session, table
from certwright import app
from certwright.admission import certificate_kinds
from certwright.app.stores import open_store
from certwright.kube.api import codec, conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Request, Response
from certwright.pki import csr, keys, signing
from certwright.resources import names
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.table import CERTIFICATES, ISSUERS

CA_ISSUERS = 10
ALONE = 40
PATIENCE_S = 1_800
_WRITERS = 16


@dataclass(slots=True)
class Counted:
    """Passes requests to the API server, and counts those of the controllers by what they do."""

    api: ApiServer
    counts: Counter[str]

    async def handle(self, request: Request) -> Response:
        """Answer and count."""
        response = await self.api.handle(request)
        if request.user is not app.ADMIN:
            if response.status >= 400:
                what = "refused"
            elif request.method in ("GET", "HEAD"):
                what = "watches and lists" if response.stream is not None else "reads"
            else:
                what = "events" if "/events" in request.target else "object writes"
            self.counts[what] += 1
        return response


@asynccontextmanager
async def serving() -> AsyncIterator[Counted]:
    """API server and durable store in this process, without a socket and without controllers."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        store = await open_store(app.ServeOptions(data_dir=Path(folder)))
        api = ApiServer(store, SystemClock(), authenticator=lambda _: None, extensions=certificate_kinds())
        await api.start(custom_resource_definitions())
        try:
            yield Counted(api, Counter())
        finally:
            await api.close()
            await store.close()


async def make_issuers(client: Client) -> None:
    """Make CA issuers as people make them, each with a pair of its own in a Secret."""
    for n in range(CA_ISSUERS):
        name, key = f"own-ca-{n}", keys.generate(keys.KeyPlan.of("ECDSA"))
        certificate = signing.self_sign(
            csr.build_csr(csr.CsrPlan(common_name=name, is_ca=True), key),
            key=key,
            duration=timedelta(days=3650),
            is_ca=True,
            usages=(),
            now=datetime.now(UTC),
        )
        pair = {names.TLS_PRIVATE_KEY_KEY: keys.encode_private_key(key), names.TLS_CERT_KEY: certificate}
        meta = SecretMeta(name=name, namespace="default", labels={names.FAO_LABEL: "true"})
        await client.create(SECRETS, Secret(metadata=meta, type="kubernetes.io/tls", data=pair))
        issuer = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"ca": {"secretName": name}},
        }
        await client.create(ISSUERS, codec.from_dict(ISSUERS, issuer))


async def create_certificate(client: Client, name: str, n: int, algorithm: str = "ECDSA") -> None:
    """Create a Certificate of that name and of CA issuer number `n` (modulo their number)."""
    spec = {
        "secretName": name,
        "dnsNames": [f"{name}.example.com"],
        "privateKey": {"algorithm": algorithm},
        "issuerRef": {"name": f"own-ca-{n % CA_ISSUERS}"},
    }
    made = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    await client.create(CERTIFICATES, codec.from_dict(CERTIFICATES, made))


async def create_certificates(
    clients: Sequence[Client], prefix: str, number: int, algorithm: str = "ECDSA", writers: int = _WRITERS
) -> None:
    """Create `PREFIX-0` to `PREFIX-N`, some at a time, through all clients in turns."""
    numbers = iter(range(number))

    async def write(client: Client) -> None:
        for n in numbers:
            await create_certificate(client, f"{prefix}-{n}", n, algorithm)

    await asyncio.gather(*(write(clients[n % len(clients)]) for n in range(writers)))


async def wait_ready(client: Client, version: str, prefix: str, number: int) -> float:
    """Watch from that resourceVersion on; the moment when so many Certificates of the prefix are Ready."""
    done: set[str] = set()
    async with (
        asyncio.timeout(PATIENCE_S),
        aclosing(client.watch(CERTIFICATES, "default", resource_version=version)) as batches,
    ):
        async for batch in batches:
            for event in batch:
                name = event.object.metadata.name
                if name.startswith(f"{prefix}-") and conditions.is_true(
                    event.object.status.conditions, "Ready"
                ):
                    done.add(name)
            if len(done) >= number:
                break
    return time.perf_counter()


async def issue(
    clients: Sequence[Client], prefix: str, number: int, algorithm: str = "ECDSA", writers: int = 500
) -> float:
    """Create so many Certificates at once; the seconds until the last one is Ready."""
    # For its revision only: a whole list would cost more with every certificate there is.
    listing = await clients[0].list_page(CERTIFICATES, "default", limit=1)
    begun = time.perf_counter()
    seen = asyncio.create_task(wait_ready(clients[0], listing.resource_version, prefix, number))
    await create_certificates(clients, prefix, number, algorithm, writers)
    return await seen - begun


async def _in_process(number: int, rsa: int) -> None:
    async with serving() as counted:
        controllers = await app.start_controllers(
            LocalTransport(counted.handle, app.CONTROLLER), app.ControllerOptions()
        )
        await controllers.wait_synced()
        client = Client(LocalTransport(counted.handle, app.ADMIN), user_agent="bench")
        try:
            await make_issuers(client)
            before, took = counted.counts.copy(), []
            for n in range(ALONE):
                took.append(1_000 * await issue([client], f"alone{n}", 1))
            await asyncio.sleep(1)  # Clean-up and Events follow Ready, and are counted.
            spent = counted.counts - before
            rows = [["one alone: create to Ready, median", f"{percentile(took):.1f} ms"]]
            rows += [[f"{what} per certificate", f"{spent[what] / ALONE:.2f}"] for what in sorted(spent)]
            rows += (await _at_once(counted, client, "ECDSA", number))[1]
            rate, more = await _at_once(counted, client, "RSA", rsa)
            share = f"{100 * rate / _rsa_rate(rsa):.0f} %"
            rows += [*more, ["RSA: share of the rate of key generation alone", share]]
            rows.append(["memory now / peak", f"{memory_mb():.0f} / {memory_mb(peak=True):.0f} MB"])
        finally:
            await controllers.close()
    table(["figure", "value"], rows)


async def _at_once(
    counted: Counted, client: Client, algorithm: str, number: int
) -> tuple[float, list[list[str]]]:
    """Issue many certificates at once; certificates per second, and rows for the table."""
    begun, before = cpu_s(), counted.counts.copy()
    rate = number / await issue([client], algorithm.lower(), number, algorithm)
    await asyncio.sleep(1)
    spent = counted.counts - before
    label = f"{number} × {algorithm} at once"
    rows = [
        [f"{label}: certificates per second", f"{rate:.0f}"],
        [f"{label}: processor time each", f"{1_000 * (cpu_s() - begun) / number:.1f} ms"],
    ]
    return rate, [
        *rows,
        *([f"{label}: {what} each", f"{spent[what] / number:.2f}"] for what in sorted(spent)),
    ]


def _rsa_rate(number: int) -> float:
    """RSA-2048 keys per second with nothing else going on, on all processors."""
    plan = keys.KeyPlan(keys.KeyAlgorithm.RSA, 2048)
    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda _: keys.generate(plan), range(number)))
    return number / (time.perf_counter() - start)


async def _mass(server: Daemon, number: int, algorithm: str) -> list[list[str]]:
    """Rows for Certificates that exist before the controllers start, and for their renewal by `certwright
    renew --all`: seconds from the first change of one of them. Another Certificate is created when the first
    is renewed."""
    async with session(server) as client:
        await make_issuers(client)
        await create_certificates([client], "mass", number, algorithm)
        with controllers(server):
            issued = await _moments(client, number, revision=1)
            first = asyncio.Event()
            following = asyncio.create_task(_moments(client, number, revision=2, first=first))
            renewing = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "certwright", "renew", "--all"),
                env={**os.environ, "KUBECONFIG": str(server.data_dir / "kubeconfig")},
                stdout=asyncio.subprocess.DEVNULL,
            )
            await first.wait()
            meanwhile = await issue([client], "meanwhile", 1, algorithm)
            await renewing.wait()
            renewed = await following
    rows = []
    for what, moments, one in (("issued", issued, "-"), ("renewed", renewed, f"{meanwhile:.1f} s")):
        marks = (moments[0], moments[len(moments) // 2], moments[-1])
        rows.append([f"{number:,} {algorithm}", what, *(f"{mark:.1f} s" for mark in marks), one])
    return rows


async def _moments(
    client: Client, number: int, *, revision: int, first: asyncio.Event | None = None
) -> list[float]:
    """The sorted seconds from the first change until each Certificate has that revision."""
    moments: dict[str, float] = {}
    begun = 0.0
    version = (await client.list_page(CERTIFICATES, "default", limit=1)).resource_version
    async with (
        asyncio.timeout(PATIENCE_S),
        aclosing(client.watch(CERTIFICATES, "default", resource_version=version)) as batches,
    ):
        async for batch in batches:
            now = time.perf_counter()
            begun = begun or now
            for event in batch:
                name = event.object.metadata.name
                if event.object.status.revision == revision and name.startswith("mass-"):
                    moments.setdefault(name, now - begun)
            if first is not None and moments:
                first.set()
            if len(moments) >= number:
                break
    return sorted(moments.values())


def main(arguments: Sequence[str] = ()) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="issuance", description=__doc__)
    parser.add_argument("--number", type=int, default=500, help="ECDSA certificates at once")
    parser.add_argument("--rsa", type=int, default=200, help="RSA certificates at once")
    parser.add_argument("--mass", type=int, nargs="+", metavar="N", help="these instead, ECDSA and RSA")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    if not options.mass:
        app.run(_in_process(options.number, options.rsa))
        return
    rows = []
    for number in options.mass:
        for algorithm in ("ECDSA", "RSA"):
            with daemon("--controllers", "") as server:
                rows += asyncio.run(_mass(server, number, algorithm))
    table(["certificates", "what", "first", "median", "last", "a new one meanwhile"], rows)


if __name__ == "__main__":
    main(sys.argv[1:])
