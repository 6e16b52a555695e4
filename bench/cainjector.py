"""Memory of the controllers beside many Secrets and CustomResourceDefinitions that are not theirs, with and
without CA injection."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bench.beside import controllers, rest, session
from bench.rig import Daemon, daemon, table
from certwright.kube.api.kinds import Kind

Json = dict[str, Any]
_AT_A_TIME = 50
_SECRET_BYTES = 2_000
_FIELDS = 120
"""Properties of each CustomResourceDefinition: some 30 KB, as Kubernetes' operators have them."""
_CRDS: Kind[Json] = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
    False,
    dict,
)
_SECRETS: Kind[Json] = Kind("", "v1", "Secret", "secrets", "secret", True, dict)


@dataclass(frozen=True, slots=True)
class _Stock:
    """How many objects lie in the server; `annotated` of the CustomResourceDefinitions want the CA."""

    secrets: int
    crds: int
    annotated: int


def _secret(number: int) -> Json:
    meta = {"name": f"foreign-{number}", "namespace": "default"}
    return {"metadata": meta, "stringData": {"data": "x" * _SECRET_BYTES}}


def _crd(number: int, *, annotated: bool) -> Json:
    plural, group = f"things{number}", "bench.test"
    description = {"type": "string", "description": "x" * 220}
    spec = {"type": "object", "properties": {f"field{each}": description for each in range(_FIELDS)}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    service = {"namespace": "default", "name": "hook", "path": "/convert"}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}
    meta: Json = {"name": f"{plural}.{group}"}
    if annotated:
        meta["annotations"] = {"cert-manager.io/inject-apiserver-ca": "true"}
    return {
        "metadata": meta,
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": f"thing{number}", "kind": f"Thing{number}"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        },
    }


async def _fill(server: Daemon, stock: _Stock) -> None:
    async with session(server) as client:
        await _create(client.create, ((_SECRETS, _secret(number)) for number in range(stock.secrets)))
        crds = ((_CRDS, _crd(n, annotated=n < stock.annotated)) for n in range(stock.crds))
        await _create(client.create, crds)


async def _create(
    create: Callable[[Kind[Json], Json], Awaitable[Json]], objects: Iterable[tuple[Kind[Json], Json]]
) -> None:
    waiting = iter(objects)

    async def worker() -> None:
        for kind, obj in waiting:
            await create(kind, obj)

    await asyncio.gather(*(worker() for _ in range(_AT_A_TIME)))


async def _injected(server: Daemon) -> int:
    """How many CustomResourceDefinitions have a CA."""
    async with session(server) as client:
        crds = (await client.list(_CRDS)).items
    return sum(_has_ca(crd) for crd in crds if crd["spec"]["group"] == "bench.test")


def _has_ca(crd: Json) -> bool:
    return "caBundle" in crd["spec"]["conversion"]["webhook"]["clientConfig"]


def _measure(server: Daemon, what: str, *flags: str) -> list[str]:
    begun = time.perf_counter()
    with controllers(server, *flags) as pid:
        done = rest(server, pid, since=begun)
        return [what, f"{done.memory_mb:.1f}", f"{done.peak_mb:.1f}", f"{done.cpu_s:.1f}"]


def main(arguments: list[str] | None = None) -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="make bench ARGS='cainjector …'")
    parser.add_argument("--secrets", type=int, default=30_000, help="Secrets that are not ours")
    parser.add_argument("--crds", type=int, default=500, help="CustomResourceDefinitions of 30 KB")
    parser.add_argument("--annotated", type=int, default=10, help="of these, with an annotation")
    given = parser.parse_args(arguments or [])
    stock = _Stock(given.secrets, given.crds, given.annotated)
    without = ("--controllers", "*,-cainjector")
    with daemon("--controllers", "") as server:
        rows = [
            _measure(server, "empty server, without CA injection", *without),
            _measure(server, "empty server, with CA injection"),
        ]
        asyncio.run(_fill(server, stock))
        many = f"{stock.secrets:,} Secrets, {stock.crds:,} CRDs"
        rows.append(_measure(server, f"{many}, without CA injection", *without))
        rows.append(_measure(server, f"{many}, with CA injection"))
        injected = asyncio.run(_injected(server))
    table(["controllers in a process of their own", "MB at rest", "MB at most", "processor s"], rows)
    print(f"\n{injected} of {stock.annotated} annotated CustomResourceDefinitions have the CA")
