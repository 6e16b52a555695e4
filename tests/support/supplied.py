"""Servers that Deliveries keep supplied, in a world on the wall clock: for tests and for benchmarks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from certwright.controllers.deliveries.options import DeliveryOptions, Root
from certwright.kit.tls_scan import ScanFailed, TlsAddress, presented_certificate
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_certificate
from certwright.resources.delivery import Delivery, DeliveryOutput, DeliverySpec, ServedAt
from certwright.resources.references import LocalObjectReference
from certwright.resources.table import CERTIFICATES, DELIVERIES
from controllers.scene import Scene
from support.held import Held, HeldMail, HeldMailbox, HeldRequest, HeldSession
from support.live import LiveWorld, eventually, live_world
from support.mail_servers import running_dovecot, running_postfix
from support.programs import free_port
from support.proxies import caddy_reload, running_caddy, running_envoy
from support.tls_servers import running_apache, running_haproxy, running_nginx, running_postgres

_OWNER = "postgres" if os.geteuid() == 0 else ""
_COMBINED = (DeliveryOutput(name="all.pem", format="Combined"),)
_OWNED = (
    DeliveryOutput(name="tls.crt", format="CertificateChain"),
    DeliveryOutput(name="tls.key", format="PrivateKey", owner=_OWNER),
)


@dataclass(frozen=True, slots=True)
class Server:
    """How one server is started (folder, port, directory of its files), made to read its files again (the
    hook), and how a connection is held while its certificate changes."""

    name: str
    run: Callable[[Path, int, Path], AbstractContextManager[None]]
    hook: Callable[[Path], str] | None
    hold: Callable[[int], Held] | None
    outputs: tuple[DeliveryOutput, ...] = ()
    start_tls: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of its files."""
        return tuple(output.name for output in self.outputs) or ("tls.crt", "tls.key")


SERVERS = (
    Server("nginx", running_nginx, lambda folder: f"nginx -c {folder}/nginx.conf -s reload", HeldRequest),
    Server("apache", running_apache, lambda folder: f"kill -USR1 $(cat {folder}/apache.pid)", HeldRequest),
    # Go's HTTP server closes a connection whose request header is not complete after 5 s.
    Server("caddy", running_caddy, caddy_reload, None),
    # Envoy watches the directory.
    Server("envoy", running_envoy, None, HeldRequest),
    Server(
        "haproxy", running_haproxy, lambda folder: f"haproxy:{folder}/haproxy.sock", HeldRequest, _COMBINED
    ),
    Server(
        "postgres",
        running_postgres,
        lambda folder: f"kill -HUP $(head -1 {folder}/data/postmaster.pid)",
        HeldSession,
        _OWNED,
        "postgres",
    ),
    Server(
        "postfix",
        running_postfix,
        lambda folder: f"kill -HUP $(cat {folder}/postfix/queue/pid/master.pid)",
        HeldMail,
        start_tls="smtp",
    ),
    Server(
        "dovecot",
        running_dovecot,
        lambda folder: f"doveadm -c {folder}/dovecot.conf reload",
        HeldMailbox,
        start_tls="imap",
    ),
)
STALE = Server("stale", partial(running_haproxy, name="stale"), None, None, _COMBINED)
"""A server without a hook."""


@asynccontextmanager
async def supplied_servers(
    folder: Path, servers: Sequence[Server]
) -> AsyncIterator[tuple[LiveWorld, Mapping[str, int]]]:
    """A world with a Certificate `web`, and the ports of the servers that serve it, all below `folder`."""
    ports = {server.name: free_port() for server in servers}
    tls = folder / "tls"
    options = DeliveryOptions(
        roots={"tls": Root(directory=str(tls), owners=(_OWNER,))},
        hooks={server.name: server.hook(folder) for server in servers if server.hook},
        checked=("127.0.0.1:*",),
    )
    async with live_world(deliveries=options) as world:
        scene = Scene(world)
        await scene.add_ca()
        await scene.issue("web")
        await eventually(lambda: world.has_issued("web"))
        # The hooks fail until the servers run, and are repeated.
        for server in servers:
            await _deliver(world, server, ports[server.name])
        for file in (tls / server.name / name for server in servers for name in server.files):
            await eventually(partial(asyncio.to_thread, file.exists))
        with ExitStack() as stack:
            for server in servers:
                stack.enter_context(server.run(folder, ports[server.name], tls / server.name))
            yield world, ports


async def served(server: Server, port: int) -> bytes:
    """The DER of the certificate that the server presents; empty while it presents none."""
    address = TlsAddress(host="127.0.0.1", port=port, protocol=server.start_tls or "tls")
    try:
        return await presented_certificate(address, timeout_s=10)
    except ScanFailed:
        return b""


async def _deliver(world: LiveWorld, server: Server, port: int) -> None:
    spec = DeliverySpec(
        certificate_ref=LocalObjectReference(name="web"),
        root="tls",
        path=server.name,
        outputs=server.outputs,
        hook=server.name if server.hook else "",
        served_at=(ServedAt(address=f"127.0.0.1:{port}", start_tls=server.start_tls),),
    )
    made = Delivery(metadata=ObjectMeta(name=server.name, namespace="default"), spec=spec)
    await world.create(DELIVERIES, made)


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
