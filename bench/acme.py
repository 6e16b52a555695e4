"""What a certificate from an ACME server costs: time beside a bare client's, writes, Events, requests.

Pebble rejects a tenth of all nonces, as a busy CA might, and names the waits (`Retry-After`) of the
configuration that it is shipped with; then shorter ones, where the client's own work shows more. Names are
validated by HTTP-01 with the built-in responder, and by DNS-01 with a real BIND. `make pebble` builds Pebble;
Debian's bind9 has named. A bare client loop places the same orders in turns with certwright, because a figure
without it would show how fast Pebble is; it stores nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.serialization import Encoding

from bench.issuance import Counted, serving, wait_ready
from bench.rig import cpu_s, memory_mb, table
from certwright import app
from certwright.acme.protocol import account, challenges, orders
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import Identifier, Unreachable
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Request, Response, TlsOptions, Transport
from certwright.acme.solvers.contract import Solver, Task
from certwright.acme.solvers.dns01.rfc2136 import Rfc2136, tsig_key
from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.names import NameServers
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.manager import ControllerManager
from certwright.controllers.settings import Settings
from certwright.kube.api import codec, conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.executor import Threads
from certwright.pki import csr, keys
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from support.bind import Bind, running_bind
from support.pebble import Pebble, running_pebble
from support.programs import TOOLS

REJECTED_PER_CENT = 10
ATTEMPTS = 3
_ALGORITHM = "hmacsha256"
# At most 60 names of the bare client are with the CA at once: with 200, name servers drop questions.
_AT_ONCE = 60
_FIRST_S, _LONGEST_S = 0.1, 1.0


class Waits(NamedTuple):
    """The seconds that Pebble names in `Retry-After`, as its configuration has them."""

    authz: int
    order: int


AS_SHIPPED, SHORT = Waits(authz=3, order=5), Waits(authz=1, order=1)


class Measurement(NamedTuple):
    """A challenge type, the number of certificates, the names of each, and Pebble's waits."""

    kind: str
    number: int
    each: int
    waits: Waits

    @property
    def name(self) -> str:
        """The beginning of its rows."""
        large = f", {self.each} names each" if self.each > 1 else ""
        return f"{self.kind}{large}{', short waits' if self.waits == SHORT else ''}"


class Took(NamedTuple):
    """Seconds, and processor seconds of this process: those of Pebble and BIND are not included."""

    wall_s: float
    cpu_s: float


def _now() -> datetime:
    return datetime.now(UTC)


def _over_http(tls: TlsOptions) -> HttpTransport:
    return HttpTransport(tls, user_agent="certwright-bench", now=_now)


@dataclass(slots=True)
class CountedTransport:
    """HTTP to the ACME server that counts requests by action, and those with a rejected nonce apart."""

    inner: Transport
    calls: Counter[str]

    async def send(self, request: Request) -> Response:
        """Send and count."""
        response = await self.inner.send(request)
        rejected = response.status == 400 and b"badNonce" in response.body
        self.calls["rejected nonces" if rejected else str(request.action)] += 1
        return response

    async def close(self) -> None:
        """Close the connections."""
        await self.inner.close()


@dataclass(slots=True)
class BareClient:
    """A client loop with an account and a solver. It does not check that its responses can be seen."""

    client: AcmeClient
    solver: Solver
    kind: str
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def obtain(self, names: Sequence[str]) -> None:
        """Get a certificate for these names."""
        key = keys.generate(keys.KeyPlan.of("ECDSA", 256))
        request = csr.read_csr(csr.build_csr(csr.CsrPlan(dns_names=tuple(names)), key))
        order = await self.client.run(orders.new_order, [Identifier("dns", name) for name in names])
        await asyncio.gather(*map(self._prove, order.authorizations))
        finalized = await self.client.run(orders.finalize, order, request.parsed.public_bytes(Encoding.DER))
        wait = _FIRST_S
        while finalized.status != "valid":
            await _pause(wait, finalized.retry_after)
            wait = min(2 * wait, _LONGEST_S)
            finalized = await self.client.run(orders.fetch_order, order.url)
            assert finalized.status != "invalid", finalized.error
        await self.client.run(orders.download, finalized.certificate)

    async def _prove(self, url: str) -> None:
        authorization = await self.client.run(orders.fetch_authorization, url)
        if authorization.status == "valid":
            return
        offered = next(challenge for challenge in authorization.challenges if challenge.type == self.kind)
        shown = challenges.key_authorization(offered.token, self.client.key)
        task = Task(
            type=self.kind,
            identifier=authorization.identifier.value,
            token=offered.token,
            key=challenges.dns_value(shown) if self.kind == "dns-01" else shown,
            uid=offered.url,
        )
        await self.solver.present(task)
        async with self.slots:
            await self.client.run(orders.accept_challenge, offered.url)
            wait, retry_after, status = _FIRST_S, None, "pending"
            while status == "pending":
                await _pause(wait, retry_after)
                wait = min(2 * wait, _LONGEST_S)
                authorization = await self.client.run(orders.fetch_authorization, url)
                status, retry_after = authorization.status, authorization.retry_after
            assert status == "valid", authorization.error
        await self.solver.clean_up(task)


async def _pause(seconds: float, retry_after: datetime | None) -> None:
    named = (retry_after - _now()).total_seconds() if retry_after is not None else 0.0
    await asyncio.sleep(max(seconds, named))


@dataclass(slots=True)
class Scene:
    """A Pebble with a BIND, a responder, and certwright with a ClusterIssuer `acme` that is Ready."""

    kind: str
    pebble: Pebble
    bind: Bind
    responder: Responder
    counted: Counted
    client: Client
    calls: Counter[str]

    async def bare(self, names: Sequence[Sequence[str]]) -> Took:
        """What the bare client takes for a certificate for each list of names, all at once."""
        solver: Solver = self.responder
        if self.kind == "dns-01":
            key = tsig_key(_ALGORITHM, self.bind.secrets[_ALGORITHM], "HMACSHA256")
            servers = NameServers((self.bind.address,), authority_port=self.bind.port)
            solver = Rfc2136(("127.0.0.1", self.bind.port), servers, key=key)
        account_key = AccountKey(keys.generate(keys.KeyPlan.of("RSA", 2048)))  # RSA as cert-manager's
        transport = _over_http(TlsOptions(self.pebble.ca_bundle))
        client = AcmeClient(self.pebble.directory, account_key, transport, now=_now)
        await client.run(account.register)
        bare = BareClient(client, solver, self.kind)
        await _middle_of_a_second()
        begun, before = time.perf_counter(), cpu_s()
        try:
            await asyncio.gather(*map(bare.obtain, names))
            return Took(time.perf_counter() - begun, cpu_s() - before)
        finally:
            await client.close()

    async def ours(self, label: str, names: Sequence[Sequence[str]]) -> Took:
        """What certwright takes, from the first create to the last Ready."""
        listing = await self.client.list_page(CERTIFICATES, "default", limit=1)
        await _middle_of_a_second()
        begun, before = time.perf_counter(), cpu_s()
        seen = asyncio.create_task(wait_ready(self.client, listing.resource_version, label, len(names)))
        await asyncio.gather(*(self._create(f"{label}-{n}", each) for n, each in enumerate(names)))
        return Took(await seen - begun, cpu_s() - before)

    async def _create(self, name: str, dns_names: Sequence[str]) -> None:
        spec = {
            "secretName": name,
            "dnsNames": list(dns_names),
            "privateKey": {"algorithm": "ECDSA"},
            "issuerRef": {"name": "acme", "kind": "ClusterIssuer"},
        }
        made = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        await self.client.create(CERTIFICATES, codec.from_dict(CERTIFICATES, made))

    async def make_issuer(self) -> None:
        """Create the ClusterIssuer, and wait until it is Ready."""
        meta = SecretMeta(name="tsig", namespace="kube-system")
        secret = Secret(metadata=meta, data={"key": self.bind.secrets[_ALGORITHM].encode()})
        await self.client.create(SECRETS, secret)
        solver: dict[str, Any] = {"http01": {"ingress": {}}}
        if self.kind == "dns-01":
            rfc2136 = {
                "nameserver": self.bind.address,
                "tsigKeyName": _ALGORITHM,
                "tsigAlgorithm": "HMACSHA256",
                "tsigSecretSecretRef": {"name": "tsig", "key": "key"},
            }
            solver = {"dns01": {"rfc2136": rfc2136}}
        acme = {
            "server": self.pebble.directory,
            "skipTLSVerify": True,
            "privateKeySecretRef": {"name": "account"},
            "solvers": [solver],
        }
        made = {"metadata": {"name": "acme"}, "spec": {"acme": acme}}
        await self.client.create(CLUSTER_ISSUERS, codec.from_dict(CLUSTER_ISSUERS, made))
        async with asyncio.timeout(30):
            while True:
                issuer = await self.client.get(CLUSTER_ISSUERS, "acme")
                if conditions.is_true(issuer.status.conditions, "Ready"):
                    return
                await asyncio.sleep(0.1)


async def _middle_of_a_second() -> None:
    """Pebble's waits end at full seconds: a run that begins just before one waits less."""
    await asyncio.sleep((0.5 - time.time()) % 1)


@asynccontextmanager
async def _scene(kind: str, pebble: Pebble, bind: Bind) -> AsyncIterator[Scene]:
    responder, calls, executor = Responder(), Counter[str](), Threads()
    await responder.listen("127.0.0.1", pebble.http_port)
    options = AcmeOptions(
        http01_check_port=pebble.http_port,
        http01_nameservers=(bind.address,),
        dns01_nameservers=(bind.address,),
        dns01_authority_port=bind.port,
        responder=responder,
        make_transport=lambda tls: CountedTransport(_over_http(tls), calls),
    )
    async with serving() as counted:
        their_client = Client(LocalTransport(counted.handle, app.CONTROLLER), user_agent="controllers")
        controllers = ControllerManager(their_client, SystemClock(), executor, Settings(acme=options))
        controllers.start()
        await controllers.wait_synced()
        client = Client(LocalTransport(counted.handle, app.ADMIN), user_agent="bench")
        scene = Scene(kind, pebble, bind, responder, counted, client, calls)
        try:
            await scene.make_issuer()
            yield scene
        finally:
            await controllers.close()
            executor.close()
            await responder.close()


async def _measure(measurement: Measurement, rounds: int, pebble: Pebble, bind: Bind) -> None:
    """Print the table: bare client and certwright in turns, the best of each counts."""
    label, number = measurement.kind, measurement.number
    async with _scene(measurement.kind, pebble, bind) as scene:
        asked, written = Counter[str](), Counter[str]()
        bare, ours, alone = list[Took](), list[Took](), list[list[Took]]()
        for turn in range(rounds):
            bare.append(await scene.bare(_names(f"{label}-bare-{turn}", number, measurement.each)))
            writes, calls = scene.counted.counts.copy(), scene.calls.copy()
            names = _names(f"{label}-{turn}", number, measurement.each)
            ours.append(await scene.ours(f"{label}-{turn}", names))
            await asyncio.sleep(1)  # Clean-up and Events follow Ready, and are counted.
            written += scene.counted.counts - writes
            asked += scene.calls - calls
            if measurement.each == 1:
                single = await scene.bare(_names(f"{label}-single-bare-{turn}", 1))
                names = _names(f"{label}-single-{turn}", 1)
                alone.append([single, await scene.ours(f"single{turn}", names)])
        memory = f"{memory_mb():.0f} / {memory_mb(peak=True):.0f} MB"
    made, rejected = rounds * number, asked.pop("rejected nonces", 0)
    rows = _compared(f"{number} at once", bare, ours, number)
    if alone:
        rows += _compared("one alone", [pair[0] for pair in alone], [pair[1] for pair in alone], 1)
    rows += [[f"{what} each", f"{written[what] / made:.2f}"] for what in sorted(written)]
    by_action = ", ".join(f"{what} {count / made:.2f}" for what, count in asked.most_common())
    rows.append(["ACME requests each", f"{asked.total() / made:.2f}: {by_action}"])
    rows.append(["requests repeated for their nonce, each", f"{rejected / made:.2f}"])
    rows.append(["memory now / peak, the bare client's included", memory])
    table([measurement.name, "value"], rows)


def _names(label: str, number: int, each: int = 1) -> list[list[str]]:
    """Names that were not ordered before."""
    return [[f"n{i}.{label}-{n}.example.org" for i in range(each)] for n in range(number)]


def _compared(what: str, bare: Sequence[Took], ours: Sequence[Took], number: int) -> list[list[str]]:
    wall, bare_wall = (min(took.wall_s for took in runs) for runs in (ours, bare))
    cpu, bare_cpu = (1_000 * min(took.cpu_s for took in runs) / number for runs in (ours, bare))
    return [
        [f"{what}: wall / bare client's", f"{wall:.2f} / {bare_wall:.2f} s: {wall / bare_wall:.2f} ×"],
        [f"{what}: processor time each / bare client's", f"{cpu:.1f} / {bare_cpu:.1f} ms"],
    ]


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table for each measurement."""
    parser = argparse.ArgumentParser(prog="acme", description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    if not (TOOLS / "pebble").exists() or not (TOOLS / "pebble-challtestsrv").exists():
        print("not measured: run `make pebble`")
        return
    if not (shutil.which("named") or shutil.which("named", path="/usr/sbin")):
        print("not measured: named is not installed (Debian: bind9)")
        return
    number = options.number
    cases = (("http-01", number, 1), ("dns-01", number, 1), ("http-01", number // 20, 100))
    for waits in (AS_SHIPPED, SHORT):
        for kind, count, each in cases:
            measurement = Measurement(kind, count, each, waits)
            environment = {"PEBBLE_WFE_NONCEREJECT": str(REJECTED_PER_CENT), "PEBBLE_AUTHZREUSE": "0"}
            for attempt in range(ATTEMPTS):  # each with another Pebble
                with (
                    running_bind() as bind,
                    running_pebble(
                        environment=environment, names=bind.address, retryAfter=waits._asdict()
                    ) as pebble,
                ):
                    try:
                        app.run(_measure(measurement, options.rounds, pebble, bind))
                        break
                    except (Unreachable, TimeoutError) as error:
                        print(f"{measurement.name}: attempt {attempt + 1}: {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
