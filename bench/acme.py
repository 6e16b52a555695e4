"""What a certificate from an ACME server costs: time beside a bare client's, writes, events, requests.

Pebble refuses a part of all nonces, as a busy CA might, and names the waits (`Retry-After`) of the
configuration that it is shipped with; then shorter ones, where everybody's own work shows more. Names are
proven by HTTP-01 with the built-in responder, and by DNS-01 with a real BIND. `make pebble` builds Pebble;
Debian's bind9 has named.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.acme_floor import Floor, now, open_account
from bench.certificates import Bench, Counted, cpu_s, ready
from bench.rig import memory_mb, table
from certwright import app
from certwright.acme.protocol.errors import Unreachable
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.messages import Request, Response
from certwright.acme.protocol.transport import TlsOptions, Transport
from certwright.acme.solvers.contract import Solver
from certwright.acme.solvers.dns01.rfc2136 import Rfc2136, TsigKey
from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.names import NameServers
from certwright.admission.kinds import certificate_kinds
from certwright.app.stores import open_store
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.manager import Controllers
from certwright.controllers.settings import Settings
from certwright.kube.api import codec, conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.local import LocalTransport
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.executor import Threads
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ORDERS
from support.bind import Bind, running_bind
from support.pebble import Pebble, running_pebble
from support.programs import TOOLS

NUMBER = 200
LARGE, NAMES_EACH = 10, 100
ROUNDS = 3
ALONE = 5
ATTEMPTS = 3
_ALGORITHM = "hmacsha256"


class Waits(NamedTuple):
    """The seconds that Pebble names in `Retry-After`, as its configuration has them."""

    authz: int
    order: int


AS_SHIPPED = Waits(authz=3, order=5)
SHORT = Waits(authz=1, order=1)


class Measurement(NamedTuple):
    """A way of proof, per cent of nonces refused, certificates, names in each, what Pebble has waited for."""

    kind: str
    label: str
    refused: int
    number: int = NUMBER
    each: int = 1
    waits: Waits = AS_SHIPPED

    @property
    def name(self) -> str:
        """What its rows begin with."""
        return f"{self.label}-{self.refused}{'-short' if self.waits == SHORT else ''}"


_AS_SHIPPED = (
    Measurement("http-01", "http", 10),
    Measurement("dns-01", "dns", 10),
    Measurement("http-01", "large", 10, LARGE, NAMES_EACH),
)
MEASUREMENTS = (*_AS_SHIPPED, *(measurement._replace(waits=SHORT) for measurement in _AS_SHIPPED))


class Took(NamedTuple):
    """Seconds of wall and processor; those of Pebble and BIND are not among the latter."""

    wall_s: float
    cpu_s: float


"""What stands between a client and its transport."""


@dataclass(slots=True)
class CountedTransport:
    """HTTP to the ACME server; what was asked is counted, refused nonces apart."""

    inner: Transport
    calls: Counter[str]

    async def send(self, request: Request) -> Response:
        """Send and count."""
        response = await self.inner.send(request)
        refused = response.status == 400 and b"badNonce" in response.body
        self.calls["refused nonces" if refused else str(request.action)] += 1
        return response

    async def close(self) -> None:
        """Let go of the connections."""
        await self.inner.close()


@dataclass(slots=True)
class Scene:
    """One Pebble with a BIND, a responder where it looks, and a certwright whose issuers are Ready."""

    pebble: Pebble
    bind: Bind
    responder: Responder
    bench: Bench
    calls: Counter[str]

    def floor_solver(self, kind: str) -> Solver:
        """Shows the proofs of the bare client."""
        if kind == "http-01":
            return self.responder
        key = TsigKey(_ALGORITHM, self.bind.secrets[_ALGORITHM], "HMACSHA256")
        names = NameServers((self.bind.address,), authority_port=self.bind.port)
        return Rfc2136(("127.0.0.1", self.bind.port), names, key=key)

    async def floor(self, kind: str, names: Sequence[Sequence[str]]) -> Took:
        """What the bare client needs."""
        transport = over_http(TlsOptions(self.pebble.ca_bundle))
        client = await open_account(self.pebble.directory, transport)
        floor = Floor(client, self.floor_solver(kind), kind)
        await middle_of_a_second()
        before = cpu_s()
        try:
            return Took(await floor.take(names), cpu_s() - before)
        finally:
            await client.close()

    async def ours(self, kind: str, label: str, names: Sequence[Sequence[str]]) -> Took:
        """From the first apply to the last Ready."""
        await middle_of_a_second()
        before = cpu_s()

        async def begin() -> None:
            await asyncio.gather(
                *(self._apply(kind, f"{label}-{n}", dns_names) for n, dns_names in enumerate(names))
            )

        try:
            wall = await ready(self.bench, lambda name: name.startswith(f"{label}-"), len(names), begin)
            return Took(wall, cpu_s() - before)
        except SystemExit as error:
            raise SystemExit(f"{error}; {await self._hindrance()}") from None

    async def _hindrance(self) -> str:
        """What most of the Orders wait for, or have failed by."""
        orders = (await self.bench.client.list(ORDERS)).items
        reasons = Counter(order.status.reason for order in orders if order.status.state != "valid")
        return "; ".join(f"{number} × {reason}" for reason, number in reasons.most_common(3))

    async def _apply(self, kind: str, name: str, dns_names: Sequence[str]) -> None:
        spec = {
            "secretName": name,
            "dnsNames": list(dns_names),
            "privateKey": {"algorithm": "ECDSA"},
            "issuerRef": {"name": kind, "kind": "ClusterIssuer"},
        }
        await self.bench.create(CERTIFICATES, name, spec)

    async def make_issuers(self) -> None:
        """One for each way of proof."""
        meta = SecretMeta(name="tsig", namespace="kube-system")
        secret = Secret(metadata=meta, data={"key": self.bind.secrets[_ALGORITHM].encode()})
        await self.bench.client.create(SECRETS, secret)
        rfc2136 = {
            "nameserver": self.bind.address,
            "tsigKeyName": _ALGORITHM,
            "tsigAlgorithm": "HMACSHA256",
            "tsigSecretSecretRef": {"name": "tsig", "key": "key"},
        }
        solvers: dict[str, dict[str, Any]] = {
            "http-01": {"http01": {"ingress": {}}},
            "dns-01": {"dns01": {"rfc2136": rfc2136}},
        }
        for kind, solver in solvers.items():
            await self._make_issuer(kind, solver)

    async def _make_issuer(self, name: str, solver: dict[str, Any]) -> None:
        spec = {
            "server": self.pebble.directory,
            "skipTLSVerify": True,
            "privateKeySecretRef": {"name": f"{name}-account"},
            "solvers": [solver],
        }
        meta = {"name": name}
        version = (await self.bench.client.list(CLUSTER_ISSUERS)).resource_version
        await self.bench.client.create(
            CLUSTER_ISSUERS, codec.from_dict(CLUSTER_ISSUERS, {"metadata": meta, "spec": {"acme": spec}})
        )
        async with asyncio.timeout(30):
            async for batch in self.bench.client.watch(CLUSTER_ISSUERS, resource_version=version):
                issuers = [event.object for event in batch if event.object.metadata.name == name]
                if any(conditions.is_true(issuer.status.conditions, "Ready") for issuer in issuers):
                    return


def over_http(tls: TlsOptions) -> HttpTransport:
    """How the bare client talks to Pebble."""
    return HttpTransport(tls, user_agent="certwright-bench", now=now)


async def middle_of_a_second() -> None:
    """Pebble says now "in a second" and now at which full one: who begins just before one waits less."""
    await asyncio.sleep((0.5 - time.time()) % 1)


@asynccontextmanager
async def certwright(
    pebble: Pebble, bind: Bind, responder: Responder, calls: Counter[str]
) -> AsyncIterator[Bench]:
    """Everything of `certwright serve` but the socket, with counters in between."""
    with tempfile.TemporaryDirectory(prefix="certwright-bench-") as folder:
        store = await open_store(app.ServeOptions(data_dir=Path(folder)))
        api = ApiServer(store, SystemClock(), authenticator=lambda _: None, extensions=certificate_kinds())
        await api.start(custom_resource_definitions())
        counted, executor = Counted(api, Counter()), Threads()
        options = AcmeOptions(
            http01_check_port=pebble.http_port,
            http01_nameservers=(bind.address,),
            dns01_nameservers=(bind.address,),
            dns01_authority_port=bind.port,
            responder=responder,
            make_transport=lambda tls: CountedTransport(over_http(tls), calls),
        )
        client = Client(LocalTransport(counted.handle, app.CONTROLLER), user_agent="controllers")
        controllers = Controllers(client, SystemClock(), executor, Settings(acme=options))
        controllers.start()
        await controllers.wait_synced()
        try:
            yield Bench(Client(LocalTransport(counted.handle, app.ADMIN), user_agent="bench"), counted)
        finally:
            await controllers.close()
            executor.close()
            await api.close()
            await store.close()


@contextlib.contextmanager
def neighbours(measurement: Measurement) -> Iterator[tuple[Pebble, Bind]]:
    """A Pebble that asks a BIND for names, refuses its share of the nonces, and has its waits waited for."""
    environment = {"PEBBLE_WFE_NONCEREJECT": str(measurement.refused), "PEBBLE_AUTHZREUSE": "0"}
    waits = measurement.waits._asdict()
    with (
        running_bind() as bind,
        running_pebble(environment=environment, names=bind.address, retryAfter=waits) as pebble,
    ):
        yield pebble, bind


def queued_s() -> float:
    """Seconds in which this process was ready to run and no processor was free, so far."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def names_for(label: str, number: int, each: int = 1) -> list[list[str]]:
    """Names that nobody else has asked for."""
    return [[f"n{i}.{label}-{n}.example.org" for i in range(each)] for n in range(number)]


async def measure(scene: Scene, measurement: Measurement) -> list[list[str]]:
    """Rows for one way of proof: bare client and certwright in turns, the best of each counts."""
    kind, number, each, label = measurement.kind, measurement.number, measurement.each, measurement.name
    floors, ours = [], []
    asked: Counter[str] = Counter()
    written: Counter[str] = Counter()
    queued = queued_s()
    for turn in range(ROUNDS):
        floors.append(await scene.floor(kind, names_for(f"{label}-floor-{turn}", number, each)))
        writes, calls = scene.bench.counted.counts.copy(), scene.calls.copy()
        ours.append(await scene.ours(kind, f"{label}-{turn}", names_for(f"{label}-{turn}", number, each)))
        await asyncio.sleep(1)  # what follows Ready is counted too: the clean-up, the events
        written += scene.bench.counted.counts - writes
        asked += scene.calls - calls
    queued = queued_s() - queued
    made, refused = ROUNDS * number, asked.pop("refused nonces", 0)
    rows = compared(f"{label}: {number} at once", floors, ours, number)
    rows.append([f"{label}: waiting for a processor that others had, of all walls", f"{queued:.2f} s"])
    if each == 1:
        rows += await one_by_one(scene, kind, label)
    rows += [[f"{label}: {what} each", f"{written[what] / made:.2f}"] for what in sorted(written)]
    each_for = ", ".join(f"{what} {count / made:.2f}" for what, count in asked.most_common())
    rows.append([f"{label}: ACME requests each", f"{asked.total() / made:.2f}: {each_for}"])
    rows.append([f"{label}: requests repeated for their nonce, each", f"{refused / made:.2f}"])
    return rows


async def one_by_one(scene: Scene, kind: str, label: str) -> list[list[str]]:
    """Rows for one certificate with nothing beside it: where we wait, and not for a processor, shows here."""
    floors, ours = [], []
    for turn in range(ALONE):
        floors.append(await scene.floor(kind, names_for(f"{label}-single-floor-{turn}", 1)))
        ours.append(await scene.ours(kind, f"{label}-single-{turn}", names_for(f"{label}-single-{turn}", 1)))
    return compared(f"{label}: one alone", floors, ours, 1)


def compared(what: str, floors: Sequence[Took], ours: Sequence[Took], number: int) -> list[list[str]]:
    """Rows that compare the best of each, by the wall and by the processor."""
    wall, floor_wall = min(took.wall_s for took in ours), min(took.wall_s for took in floors)
    cpu, floor_cpu = (1_000 * min(took.cpu_s for took in runs) / number for runs in (ours, floors))
    walls = ", ".join(f"{took.wall_s:.2f}" for took in ours)
    floor_walls = ", ".join(f"{took.wall_s:.2f}" for took in floors)
    return [
        [f"{what}: wall / bare client's", f"{wall:.2f} / {floor_wall:.2f} s: {wall / floor_wall:.2f} x"],
        [f"{what}: all walls / bare client's", f"{walls} / {floor_walls} s"],
        [f"{what}: processor, each / bare client's", f"{cpu:.1f} / {floor_cpu:.1f} ms"],
    ]


async def measure_alone(measurement: Measurement, pebble: Pebble, bind: Bind) -> None:
    """Print the table of one measurement, with a Pebble of its own."""
    responder, calls = Responder(), Counter[str]()
    await responder.listen("127.0.0.1", pebble.http_port)
    try:
        async with certwright(pebble, bind, responder, calls) as bench:
            scene = Scene(pebble, bind, responder, bench, calls)
            await scene.make_issuers()
            rows = await measure(scene, measurement)
        memory = f"{memory_mb():.0f} / {memory_mb(peak=True):.0f} MB"
        show([*rows, [f"{measurement.name}: memory now / peak, bare client's among it", memory]])
    finally:
        await responder.close()


def show(rows: list[list[str]]) -> None:
    """Print a table now: the next measurement may take minutes."""
    table(["figure", "value"], rows)
    print(flush=True)


def missing() -> str:
    """What is not installed, as a sentence; empty: nothing."""
    if not (TOOLS / "pebble").exists() or not (TOOLS / "pebble-challtestsrv").exists():
        return "Pebble is not there; run `make pebble`"
    if not (shutil.which("named") or shutil.which("named", path="/usr/sbin")):
        return "named is not installed (Debian: bind9)"
    return ""


def main() -> None:
    """Print the table."""
    logging.basicConfig(level=logging.WARNING)
    if reason := missing():
        print(f"not measured: {reason}")
        return
    print(
        f"{NUMBER} certificates at once by each way of proof, {LARGE} of {NAMES_EACH} names. The number in a "
        f"label is how many per cent of the nonces Pebble refuses. It names the waits of its shipped "
        f"configuration ({AS_SHIPPED.authz} s for an authorization, {AS_SHIPPED.order} s for an order), or "
        f"{SHORT.order} s where the label ends with short.\n",
        flush=True,
    )
    for measurement in MEASUREMENTS:
        measure_with_patience(measurement)


def measure_with_patience(measurement: Measurement) -> None:
    """Measure; again, with another Pebble, where it fails. What comes after it is measured all the same."""
    for attempt in range(ATTEMPTS):
        with neighbours(measurement) as (pebble, bind):
            try:
                app.run(measure_alone(measurement, pebble, bind))
            except (Unreachable, SystemExit) as error:
                print(f"{measurement.name}: attempt {attempt + 1}: {error}", flush=True)
            else:
                return


if __name__ == "__main__":
    main()
