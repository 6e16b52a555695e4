"""What a certificate costs: requests and writes, time, processor, memory.

One process holds API server, durable SQLite store and controllers, wired as `certwright serve` wires them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.rig import median, memory_mb, table, until
from certwright import app
from certwright.admission.kinds import certificate_kinds
from certwright.app.stores import open_store
from certwright.kube.api import codec, conditions
from certwright.kube.api.kinds import Kind
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.local import LocalTransport
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Request, Response
from certwright.pki import keys
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS

CERTIFICATES_AT_ONCE = 500
RSA_AT_ONCE = 200
CA_ISSUERS = 10
ALONE = 40


@dataclass(slots=True)
class Counted:
    """Passes requests to the API server and counts them by what they are."""

    api: ApiServer
    counts: Counter[str]

    async def handle(self, request: Request) -> Response:
        """Answer and count."""
        response = await self.api.handle(request)
        if request.user is not app.ADMIN:
            self.counts[self._sort(request, response)] += 1
        return response

    @staticmethod
    def _sort(request: Request, response: Response) -> str:
        if response.status >= 400:
            return "refused"
        if request.method in ("GET", "HEAD"):
            return "watches and lists" if response.stream is not None else "reads"
        return "events" if "/events" in request.target else "object writes"


@dataclass(slots=True)
class Bench:
    """The running parts."""

    client: Client
    counted: Counted

    async def create(
        self, kind: Kind[Any], name: str, spec: dict[str, Any], namespace: str = "default"
    ) -> None:
        """Create one object as the user would."""
        meta = {"name": name, "namespace": namespace} if kind.namespaced else {"name": name}
        await self.client.create(kind, codec.from_dict(kind, {"metadata": meta, "spec": spec}))


@asynccontextmanager
async def running(data_dir: Path | None = None, *, encrypt_secrets: bool = True) -> AsyncIterator[Bench]:
    """Everything of `certwright serve` but the socket, with a counter in between."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        options = app.ServeOptions(data_dir=data_dir or Path(folder), encrypt_secrets=encrypt_secrets)
        store = await open_store(options)
        api = ApiServer(store, SystemClock(), authenticator=lambda _: None, extensions=certificate_kinds())
        await api.start(custom_resource_definitions())
        counted = Counted(api, Counter())
        controllers = await app.start_controllers(
            LocalTransport(counted.handle, app.CONTROLLER), app.ControllerOptions()
        )
        await controllers.wait_synced()
        try:
            yield Bench(Client(LocalTransport(counted.handle, app.ADMIN), user_agent="bench"), counted)
        finally:
            await controllers.close()
            await api.close()
            await store.close()


async def ready(bench: Bench, matches: Callable[[str], bool], number: int, begin: Callable[[], Any]) -> float:
    """Start `begin`, and the seconds until `number` certificates whose name `matches` are Ready."""
    done, names = asyncio.Event(), set[str]()
    # For its revision only: all of them would cost more with every certificate there is.
    listing = await bench.client.list_page(CERTIFICATES, "default", limit=1)

    async def follow() -> None:
        version = listing.resource_version
        async for batch in bench.client.watch(CERTIFICATES, "default", resource_version=version):
            for event in batch:
                if matches(event.object.metadata.name):
                    if conditions.is_true(event.object.status.conditions, "Ready"):
                        names.add(event.object.metadata.name)
                    if len(names) >= number:
                        done.set()

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    start = time.perf_counter()
    await begin()
    await until(done, seconds=300, what=f"only {len(names)} of {number} certificates became Ready")
    took = time.perf_counter() - start
    task.cancel()
    return took


async def make_issuers(bench: Bench) -> None:
    """A self-signed root, and CA issuers below it."""
    await bench.create(CLUSTER_ISSUERS, "root", {"selfSigned": {}})

    async def begin() -> None:
        for n in range(CA_ISSUERS):
            await bench.create(
                CERTIFICATES,
                f"ca-{n}",
                {
                    "isCA": True,
                    "commonName": f"ca-{n}",
                    "secretName": f"ca-{n}",
                    "privateKey": {"algorithm": "ECDSA"},
                    "issuerRef": {"name": "root", "kind": "ClusterIssuer"},
                },
            )
            await bench.create(ISSUERS, f"ca-{n}", {"ca": {"secretName": f"ca-{n}"}})

    await ready(bench, lambda name: name.startswith("ca-"), CA_ISSUERS, begin)


async def make_certificate(bench: Bench, name: str, issuer: int, algorithm: str) -> None:
    """One leaf certificate."""
    await bench.create(
        CERTIFICATES,
        name,
        {
            "secretName": name,
            "dnsNames": [f"{name}.example.com"],
            "privateKey": {"algorithm": algorithm},
            "issuerRef": {"name": f"ca-{issuer}"},
        },
    )


def cpu_s() -> float:
    """Processor seconds of this process and its threads so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def one_alone(bench: Bench) -> list[list[str]]:
    """Certificates one after the other, nothing else going on."""
    took, before = [], bench.counted.counts.copy()
    for n in range(ALONE):
        name = f"alone-{n}"

        async def begin(name: str = name, n: int = n) -> None:
            await make_certificate(bench, name, n % CA_ISSUERS, "ECDSA")

        took.append(1_000 * await ready(bench, lambda candidate, name=name: candidate == name, 1, begin))  # type: ignore[misc]
    await asyncio.sleep(0.5)  # what follows Ready is counted too: the clean-up, the events
    spent = bench.counted.counts - before
    rows = [["one alone: apply to Ready, median", f"{median(took):.1f} ms"]]
    rows += [[f"{what} per certificate", f"{spent[what] / ALONE:.2f}"] for what in sorted(spent)]
    return rows


async def all_at_once(bench: Bench, algorithm: str, number: int) -> tuple[float, list[list[str]]]:
    """Many certificates applied at once; the rate, and rows for the table."""
    begun, before = cpu_s(), bench.counted.counts.copy()

    async def begin() -> None:
        makes = (
            make_certificate(bench, f"{algorithm.lower()}-{n}", n % CA_ISSUERS, algorithm)
            for n in range(number)
        )
        await asyncio.gather(*makes)

    took = await ready(bench, lambda name: name.startswith(algorithm.lower()), number, begin)
    await asyncio.sleep(1)
    spent = bench.counted.counts - before
    label = f"{number} × {algorithm} at once"
    rows = [
        [f"{label}: certificates per second", f"{number / took:.0f}"],
        [f"{label}: processor seconds each", f"{(cpu_s() - begun) / number:.4f}"],
    ]
    rows += [[f"{label}: {what} each", f"{spent[what] / number:.2f}"] for what in sorted(spent)]
    return number / took, rows


def rsa_rate(number: int) -> float:
    """RSA-2048 keys per second with nothing else going on, on all processors."""
    plan = keys.KeyPlan(keys.KeyAlgorithm.RSA, 2048)
    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda _: keys.generate(plan), range(number)))
    return number / (time.perf_counter() - start)


async def run() -> None:
    """Everything, and the table."""
    async with running() as bench:
        await make_issuers(bench)
        rows = await one_alone(bench)
        rows += (await all_at_once(bench, "ECDSA", CERTIFICATES_AT_ONCE))[1]
        rate, more = await all_at_once(bench, "RSA", RSA_AT_ONCE)
        alone = rsa_rate(RSA_AT_ONCE)
        rows += more
        rows.append(["RSA: share of the rate of key generation alone", f"{100 * rate / alone:.0f} %"])
        rows.append(["memory now / peak", f"{memory_mb():.0f} / {memory_mb(peak=True):.0f} MB"])
    table(["figure", "value"], rows)


def main() -> None:
    """Print the table."""
    logging.basicConfig(level=logging.WARNING)
    app.run(run())


if __name__ == "__main__":
    main()
