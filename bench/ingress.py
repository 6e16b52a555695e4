"""What certificates for annotated Ingresses cost, beside the same Certificates written by hand."""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Sequence
from typing import Any

from bench.certificates import CA_ISSUERS, Bench, make_certificate, make_issuers, ready, running
from bench.rig import memory_mb, table
from certwright.kube.api.kinds import Kind
from certwright.resources.ingress import INGRESSES

_UNTYPED = Kind(
    INGRESSES.group, INGRESSES.version, INGRESSES.kind, INGRESSES.plural, INGRESSES.singular, True, dict
)
_AT_A_TIME = 50


async def _all(makers: Sequence[Any]) -> None:
    for start in range(0, len(makers), _AT_A_TIME):
        await asyncio.gather(*makers[start : start + _AT_A_TIME])


async def _ingress(bench: Bench, name: str, annotations: dict[str, str]) -> None:
    host = f"{name}.example.com"
    tls = [{"hosts": [host], "secretName": name}]
    meta = {"name": name, "namespace": "default", "annotations": annotations}
    await bench.client.create(_UNTYPED, {"metadata": meta, "spec": {"tls": tls, "rules": [{"host": host}]}})


async def _annotated(bench: Bench, prefix: str, number: int) -> None:
    await _all(
        [
            _ingress(
                bench,
                f"{prefix}-{n}",
                {
                    "cert-manager.io/issuer": f"ca-{n % CA_ISSUERS}",
                    "cert-manager.io/private-key-algorithm": "ECDSA",
                },
            )
            for n in range(number)
        ]
    )


async def _by_hand(bench: Bench, prefix: str, number: int) -> None:
    await _all([make_certificate(bench, f"{prefix}-{n}", n % CA_ISSUERS, "ECDSA") for n in range(number)])


async def _measure(bench: Bench, what: str, prefix: str, number: int) -> list[str]:
    make = _by_hand if prefix == "hand" else _annotated
    bench.counted.counts.clear()
    took = await ready(
        bench, lambda name: name.startswith(f"{prefix}-"), number, lambda: make(bench, prefix, number)
    )
    # Events are written when there is nothing else to do.
    await asyncio.sleep(5)
    counts = bench.counted.counts
    return [
        what,
        f"{number / took:.0f}",
        f"{counts['object writes'] / number:.2f}",
        f"{counts['events'] / number:.2f}",
        f"{counts['reads'] / number:.2f}",
    ]


async def _run(number: int, idle: int) -> None:
    async with running() as bench:
        await make_issuers(bench)
        rows = [await _measure(bench, f"{number:,} Certificates by hand", "hand", number)]
        rows.append(await _measure(bench, f"{number:,} annotated Ingresses", "first", number))
        gc.collect()
        before = memory_mb()
        bench.counted.counts.clear()
        await _all([_ingress(bench, f"idle-{n}", {"example.com/note": "none"}) for n in range(idle)])
        await asyncio.sleep(5)
        requests = sum(bench.counted.counts.values())
        gc.collect()
        grown = memory_mb() - before
        rows.append(await _measure(bench, f"the same beside {idle:,} idle Ingresses", "second", number))
    table(["", "certificates/s", "object writes each", "Events each", "reads each"], rows)
    print(
        f"\n{idle:,} Ingresses without annotations: {requests} requests of the controllers, "
        f"{grown:+.1f} MB (API server and controllers in one process)"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make bench ARGS='ingress …'")
    parser.add_argument("--number", type=int, default=1_000, help="annotated Ingresses at once")
    parser.add_argument("--idle", type=int, default=10_000, help="Ingresses without annotations")
    given = parser.parse_args(arguments or [])
    asyncio.run(_run(given.number, given.idle))
