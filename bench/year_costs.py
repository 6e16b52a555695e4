"""What a renewal writes, and how much memory a shard needs: counted and measured, not simulated."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from bench import stock
from bench.beside import controllers, pss_mb, rest
from bench.rig import cpu_s, daemon
from certwright.kube.api.meta import ObjectMeta
from certwright.resources.certificate import Certificate, CertificateSpec, PrivateKeySpec
from certwright.resources.issuer import CAIssuer, Issuer, IssuerSpec, SelfSignedIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES, ISSUERS
from support.world import World, make_world

WRITE_HEADINGS = ["per certificate", "requests", "object writes", "Events"]
MEMORY_HEADINGS = [
    "certificates",
    "shards",
    "PSS of a replica, MB",
    "over an empty one, kB per certificate in all",
    "start, CPU s of a replica",
]


async def writes_of_renewals(number: int = 20) -> list[list[str]]:
    """Issue certificates from a CA issuer, renew them three times, and count what the controllers send. A
    renewal also deletes the request of the former revision."""
    async with make_world() as world:
        await _add_ca(world)
        rows: list[list[str]] = []
        for what in ("first issuance", "first renewal", "second renewal", "third renewal"):
            due = await _last_due(world, number) if rows else None
            for n in range(0 if rows else number):
                await world.create(CERTIFICATES, _certificate(f"web-{n}", "ca"))
            requests = world.recording.requests
            world.recording.writes.clear()
            await (world.advance_to(due) if due else world.settle())
            counts = (
                world.recording.requests - requests,
                len(world.recording.object_writes()),
                len(world.recording.event_writes()),
            )
            rows.append([what, *(f"{count / number:.2f}" for count in counts)])
    return rows


async def _add_ca(world: World) -> None:
    root = IssuerSpec(self_signed=SelfSignedIssuer())
    await world.create(ISSUERS, Issuer(metadata=_meta("root"), spec=root))
    await world.create(CERTIFICATES, _certificate("ca", "root", is_ca=True, duration="87600h"))
    await world.create(ISSUERS, Issuer(metadata=_meta("ca"), spec=IssuerSpec(ca=CAIssuer(secret_name="ca"))))
    await world.settle()


def _meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="default")


def _certificate(name: str, issuer: str, *, is_ca: bool = False, duration: str = "2160h") -> Certificate:
    spec = CertificateSpec(
        secret_name=name,
        dns_names=(f"{name}.example.com",),
        private_key=PrivateKeySpec(algorithm="ECDSA"),
        issuer_ref=IssuerReference(name=issuer),
        is_ca=is_ca,
        common_name=name if is_ca else "",  # the issuer of a certificate has a name (RFC 5280 §4.1.2.4)
        duration=duration,
    )
    return Certificate(metadata=_meta(name), spec=spec)


async def _last_due(world: World, number: int) -> datetime:
    """When the last of the current certificates is renewed."""
    names = (f"web-{n}" for n in range(number))
    moments = [(await world.certificate(name)).status.renewal_time for name in names]
    return max(moment for moment in moments if moment is not None)


def memory_of_shards(sizes: Sequence[int], shards: int) -> list[list[str]]:
    """Start as many replicas as there are shards over a store of so many certificates, wait until they rest,
    and compare with the same replicas over an empty store."""
    empty_mb, rows = 0.0, []
    for size in (0, *sizes):
        with tempfile.TemporaryDirectory(prefix="certwright-bench-") as name, ExitStack() as running:
            stock.stock(Path(name), size)
            server = running.enter_context(daemon("--controllers", "", *stock.IN_CLEAR, data_dir=Path(name)))
            begun = time.perf_counter()
            flags = ("--shards", str(shards), "--leader-election-retry-period", "5s")
            pids = [running.enter_context(controllers(server, *flags)) for _ in range(shards)]
            for pid in pids:
                rest(server, pid, since=begun, seconds=15)
            mean_mb = sum(map(pss_mb, pids)) / shards
            spent = sum(map(cpu_s, pids)) / shards
        empty_mb = empty_mb or mean_mb
        each = f"{1_000 * (mean_mb - empty_mb) / size:.2f}" if size else "-"
        rows.append([f"{size:,}", str(shards), f"{mean_mb:.0f}", each, f"{spent:.1f}"])
        print(".", rows[-1], flush=True)
    return rows
