"""Certificates issued by controllers in processes of their own: time, order, and requests by verb and kind.

All flags are the defaults. `20/50`, the default limit of requests, holds at a server without priority and
fairness.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.beside import controllers, requests, rest, session
from bench.certificates import CA_ISSUERS
from bench.rig import Daemon, cpu_s, daemon
from certwright.kube.api import codec, conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.client.rest import Client
from certwright.pki import csr, keys, signing
from certwright.resources import names
from certwright.resources.table import CERTIFICATES, ISSUERS

NUMBER = 500
PACES = {"20/50": ("--enable-priority-and-fairness", "false"), "unlimited": ()}
"""The flags of the server."""
CASES = [
    (is_on, has_label, pace)
    for pace in PACES
    for is_on, has_label in ((True, False), (True, True), (False, False))
]
HEADINGS = ["gate", "CA Secrets", "QPS/burst", "seconds", "CPU ms each", "requests each", "of which"]
MASSES = [(300, "ECDSA"), (3_000, "ECDSA"), (300, "RSA"), (3_000, "RSA")]
MASS_HEADINGS = ["certificates", "what", "first", "median", "last", "a new one meanwhile"]
_PATIENCE_S = 900
_WRITERS = 16
# Not of the controllers: the creates are ours, and so is what looks at the metrics.
_NOT_THEIRS = {("POST", "certificates"), ("WATCH", "certificates"), ("LIST", "certificates"), ("GET", "")}
_IDLE_VERBS = ("LIST", "WATCH")


@dataclass(frozen=True, slots=True)
class Issued:
    """What the certificates of one run took."""

    is_on: bool
    has_label: bool
    pace: str
    seconds: float
    cpu_ms: float
    counts: Counter[tuple[str, str]]

    @property
    def name(self) -> str:
        """The run, in some words."""
        gate, label = "on" if self.is_on else "off", "labelled" if self.has_label else "unlabelled"
        return f"issuance, {gate}, {label}, {self.pace}"

    @property
    def each(self) -> float:
        """Requests for each certificate, of every sort."""
        return sum(self.counts.values()) / NUMBER

    def sorts(self) -> str:
        """Requests for each certificate, by verb and kind."""
        return ", ".join(
            f"{verb} {kind} {count / NUMBER:.2f}" for (verb, kind), count in self.counts.most_common()
        )

    def cells(self) -> list[str]:
        """For the table."""
        gate, label = "on" if self.is_on else "off", "labelled" if self.has_label else "unlabelled"
        figures = [f"{self.seconds:.1f}", f"{self.cpu_ms:.1f}", f"{self.each:.2f}", self.sorts()]
        return [gate, label, self.pace, *figures]


def measured(folder: Path, *, flags: Sequence[str], has_label: bool, pace: str) -> Issued:
    """Issue `NUMBER` certificates from CA issuers whose Secrets a user has made."""
    with daemon("--controllers", "", *PACES[pace], data_dir=folder) as server:
        asyncio.run(make_issuers(server, has_label=has_label))
        begun = time.perf_counter()
        with controllers(server, *flags) as pid:
            rest(server, pid, since=begun)
            before, spent = asyncio.run(requests(server)), cpu_s(pid)
            seconds = asyncio.run(issue(server, NUMBER))
            rest(server, pid, since=begun, within=_PATIENCE_S)
            counts = asyncio.run(requests(server)) - before
            cpu_ms = 1_000 * (cpu_s(pid) - spent) / NUMBER
    theirs = {
        sort: count
        for sort, count in counts.items()
        if sort not in _NOT_THEIRS and sort[0] not in _IDLE_VERBS
    }
    is_on = not any("false" in flag for flag in flags if "=" in flag)
    return Issued(is_on, has_label, pace, seconds, cpu_ms, Counter(theirs))


def mass(folder: Path, number: int, algorithm: str) -> list[list[str]]:
    """The rows of so many Certificates that exist before the controllers start, and of their renewal, during
    which one more is created: seconds from the first change of one of them until they are Ready."""
    with daemon("--controllers", "", data_dir=folder) as server:
        asyncio.run(make_issuers(server, has_label=True))
        asyncio.run(_create(server, number, algorithm))
        with controllers(server, "--log-level", "warning"):
            issued = asyncio.run(_follow(server, number, revision=1))
            renewed, meanwhile = asyncio.run(_renew(server, number, algorithm))
    rows = []
    for what, moments, one in (("issued", issued, "-"), ("renewed", renewed, f"{meanwhile:.1f} s")):
        marks = (moments[0], moments[len(moments) // 2], moments[-1])
        rows.append([f"{number:,} {algorithm}", what, *(f"{mark:.1f} s" for mark in marks), one])
    return rows


async def _create(server: Daemon, number: int, algorithm: str) -> None:
    numbers = iter(range(number))

    async def create(client: Client) -> None:
        for n in numbers:
            await create_certificate(client, n, algorithm=algorithm)

    async with session(server) as client, asyncio.TaskGroup() as group:
        for _ in range(_WRITERS):
            group.create_task(create(client))


async def _renew(server: Daemon, number: int, algorithm: str) -> tuple[list[float], float]:
    """Renew all by `certwright renew --all`, and create one more when the first is renewed."""
    first = asyncio.Event()
    following = asyncio.create_task(_follow(server, number, revision=2, first=first))
    command = [sys.executable, "-m", "certwright", "renew", "--all"]
    environment = {**os.environ, "KUBECONFIG": str(server.data_dir / "kubeconfig")}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    await first.wait()
    async with session(server) as client:
        listing = await client.list(CERTIFICATES, "default")
        begun = time.perf_counter()
        await create_certificate(client, 0, "meanwhile", algorithm=algorithm)
        meanwhile = await wait_ready(client, listing.resource_version, 1, "meanwhile") - begun
    await process.wait()
    return await following, meanwhile


async def _follow(
    server: Daemon, number: int, *, revision: int, first: asyncio.Event | None = None
) -> list[float]:
    """The seconds from the first change until each of so many Certificates was issued that often."""
    moments: dict[str, float] = {}
    begun = 0.0
    async with session(server) as client, asyncio.timeout(_PATIENCE_S):
        version = (await client.list(CERTIFICATES, "default")).resource_version
        async with aclosing(client.watch(CERTIFICATES, "default", resource_version=version)) as batches:
            async for batch in batches:
                now = time.perf_counter()
                begun = begun or now
                for event in batch:
                    name, status = event.object.metadata.name, event.object.status
                    if status.revision == revision and name.startswith("fresh-"):
                        moments.setdefault(name, now - begun)
                if first is not None and moments:
                    first.set()
                if len(moments) >= number:
                    break
    return sorted(moments.values())


async def make_issuers(server: Daemon, *, has_label: bool) -> None:
    """Make CA issuers as people make them: a pair of their own in a Secret, with our label or without."""
    labels = {names.FAO_LABEL: "true"} if has_label else {}
    async with session(server) as client:
        for n in range(CA_ISSUERS):
            name = f"own-ca-{n}"
            meta = {"name": name, "namespace": "default"}
            key, certificate = _pair(name)
            secret = Secret(
                metadata=SecretMeta(name=name, namespace="default", labels=labels),
                type="kubernetes.io/tls",
                data={names.TLS_PRIVATE_KEY_KEY: key, names.TLS_CERT_KEY: certificate},
            )
            await client.create(SECRETS, secret)
            issuer = {"metadata": meta, "spec": {"ca": {"secretName": name}}}
            await client.create(ISSUERS, codec.from_dict(ISSUERS, issuer))


def _pair(name: str) -> tuple[bytes, bytes]:
    key = keys.generate(keys.KeyPlan.of("ECDSA"))
    certificate = signing.self_sign(
        csr.build_csr(csr.CsrPlan(common_name=name, is_ca=True), key),
        key=key,
        duration=timedelta(days=3650),
        is_ca=True,
        usages=(),
        now=datetime.now(UTC),
    )
    return keys.encode_private_key(key), certificate


async def issue(server: Daemon, number: int) -> float:
    """Create so many Certificates at once; the seconds until the last one was Ready."""
    async with session(server) as client:
        listing = await client.list(CERTIFICATES, "default")
        begun = time.perf_counter()
        async with asyncio.timeout(_PATIENCE_S), asyncio.TaskGroup() as group:
            seen = group.create_task(wait_ready(client, listing.resource_version, number))
            for n in range(number):
                group.create_task(create_certificate(client, n))
        return seen.result() - begun


async def create_certificate(
    client: Client, n: int, prefix: str = "fresh", *, algorithm: str = "ECDSA"
) -> None:
    """Create the Certificate `PREFIX-N`."""
    name = f"{prefix}-{n}"
    spec = {
        "secretName": name,
        "dnsNames": [f"{name}.example.com"],
        "privateKey": {"algorithm": algorithm},
        "issuerRef": {"name": f"own-ca-{n % CA_ISSUERS}"},
    }
    meta = {"name": name, "namespace": "default"}
    await client.create(CERTIFICATES, codec.from_dict(CERTIFICATES, {"metadata": meta, "spec": spec}))


async def wait_ready(client: Client, version: str, number: int, prefix: str = "fresh") -> float:
    """The moment at which so many Certificates of that prefix were Ready."""
    done: set[str] = set()
    async with aclosing(client.watch(CERTIFICATES, "default", resource_version=version)) as batches:
        async for batch in batches:
            for event in batch:
                certificate = event.object
                if conditions.is_true(certificate.status.conditions, "Ready"):
                    done.add(certificate.metadata.name)
            if len([name for name in done if name.startswith(f"{prefix}-")]) >= number:
                break
    return time.perf_counter()
