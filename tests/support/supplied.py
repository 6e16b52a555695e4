"""Servers that Deliveries keep supplied, in a world on the wall clock: for tests and for benchmarks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from certwright.controllers.deliveries.options import DeliveryOptions, Root
from certwright.controllers.deliveries.served import NotServed, served_certificate
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_certificate
from certwright.resources.delivery import Delivery, DeliveryOutput, DeliverySpec, ServedAt
from certwright.resources.references import LocalObjectReference
from certwright.resources.table import CERTIFICATES, DELIVERIES
from controllers.scene import Scene
from support.live import LiveWorld, eventually, live_world
from support.programs import free_port
from support.tls_servers import hooks_of, running_haproxy, running_nginx, running_postgres

SERVERS = ("nginx", "haproxy", "postgres")
STALE = "stale"
"""A server without a hook."""
_OWNER = "postgres" if os.geteuid() == 0 else ""
_COMBINED = (DeliveryOutput(name="all.pem", format="Combined"),)
_OWNED = (
    DeliveryOutput(name="tls.crt", format="CertificateChain"),
    DeliveryOutput(name="tls.key", format="PrivateKey", owner=_OWNER),
)


@asynccontextmanager
async def supplied_servers(folder: Path) -> AsyncIterator[tuple[LiveWorld, Mapping[str, int]]]:
    """A world with a Certificate `web`, and the ports of the servers that serve it, all below `folder`."""
    ports = {name: free_port() for name in (*SERVERS, STALE)}
    tls = folder / "tls"
    options = DeliveryOptions(
        roots={"tls": Root(directory=str(tls), owners=(_OWNER,))},
        hooks=hooks_of(folder),
        checked=("127.0.0.1:*",),
    )
    async with live_world(deliveries=options) as world:
        scene = Scene(world)
        await scene.add_ca()
        await scene.issue("web")
        await eventually(lambda: world.has_issued("web"))
        # The hooks fail until the servers run, and are repeated.
        await _deliver(world, "nginx", ports["nginx"], hook="nginx")
        await _deliver(world, "haproxy", ports["haproxy"], hook="haproxy", outputs=_COMBINED)
        await _deliver(world, "postgres", ports["postgres"], hook="postgres", outputs=_OWNED)
        await _deliver(world, STALE, ports[STALE], outputs=_COMBINED)
        for file in ("nginx/tls.key", "haproxy/all.pem", "postgres/tls.key", "stale/all.pem"):
            await eventually(partial(asyncio.to_thread, (tls / file).exists))
        with ExitStack() as stack:
            stack.enter_context(running_nginx(folder, ports["nginx"], tls / "nginx"))
            files = {ports[name]: tls / name / "all.pem" for name in ("haproxy", STALE)}
            stack.enter_context(running_haproxy(folder, files))
            stack.enter_context(running_postgres(folder, ports["postgres"], tls / "postgres"))
            yield world, ports


async def served(name: str, port: int) -> bytes:
    """The DER of the certificate that the server presents; empty while it presents none."""
    start_tls = "postgres" if name == "postgres" else ""
    try:
        return await served_certificate("127.0.0.1", port, server_name="", start_tls=start_tls)
    except NotServed:
        return b""


async def _deliver(world: LiveWorld, name: str, port: int, **spec: Any) -> None:
    address = ServedAt(address=f"127.0.0.1:{port}", start_tls="postgres" if name == "postgres" else "")
    spec = {"root": "tls", "path": name, "served_at": (address,), **spec}
    made = DeliverySpec(certificate_ref=LocalObjectReference(name="web"), **spec)
    await world.create(DELIVERIES, Delivery(metadata=ObjectMeta(name=name, namespace="default"), spec=made))


async def renew(world: LiveWorld) -> bytes:
    """Issue again; returns the new certificate."""
    before = (await world.certificate("web")).status.revision or 0
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "now"}
    patch = {"status": {"conditions": [issuing]}}
    await world.client.patch(CERTIFICATES, "web", "default", patch, subresource="status")

    async def is_renewed() -> bool:
        return (await world.certificate("web")).status.revision != before

    await eventually(is_renewed)
    return read_certificate((await world.secret("web")).data["tls.crt"]).der
