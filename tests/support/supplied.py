"""Servers that Deliveries keep supplied, in a world on the wall clock: for tests and for benchmarks."""

from __future__ import annotations

import asyncio
import imaplib
import os
import smtplib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from certwright.controllers.deliveries.permissions import DeliveryOptions, Root
from certwright.kit.tls_scan import ScanFailed, TlsAddress, presented_certificate
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_certificate
from certwright.resources.delivery import Delivery, DeliveryOutput, DeliverySpec, ServedAt
from certwright.resources.references import LocalObjectReference
from certwright.resources.table import CERTIFICATES, DELIVERIES
from controllers.scene import Scene
from support.programs import free_port
from support.tls_servers import (
    caddy_reload,
    running_apache,
    running_caddy,
    running_dovecot,
    running_envoy,
    running_haproxy,
    running_nginx,
    running_postfix,
    running_postgres,
)
from support.world import LiveWorld, eventually, live_world

_TIMEOUT_S = 60.0


class Held(Protocol):
    """A connection in the middle of a conversation."""

    def finish(self) -> bytes:
        """Continue; returns the answer."""


class HeldRequest:
    """An HTTP request whose end is not sent yet."""

    def __init__(self, port: int) -> None:
        self._socket = _context().wrap_socket(_connected(port))
        self._socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n")

    def finish(self) -> bytes:
        """Send the end; the first line of the answer."""
        with self._socket:
            self._socket.sendall(b"\r\n")
            return self._socket.recv(4096).split(b"\r\n")[0]


class HeldSession:
    """A session of PostgreSQL."""

    def __init__(self, port: int) -> None:
        plain = _connected(port)
        plain.sendall(b"\x00\x00\x00\x08\x04\xd2\x16\x2f")
        assert plain.recv(1) == b"S"
        self._socket = _context().wrap_socket(plain)
        start = struct.pack("!i", 196608) + b"user\0postgres\0database\0postgres\0\0"
        self._socket.sendall(struct.pack("!i", len(start) + 4) + start)
        self._until_ready()

    def finish(self) -> bytes:
        """Ask a question; the answer."""
        with self._socket:
            self._socket.sendall(b"Q" + struct.pack("!i", 4 + 10) + b"select 42\0")
            return self._until_ready()

    def _until_ready(self) -> bytes:
        answer = b""
        while not answer.endswith(b"Z\x00\x00\x00\x05I"):
            piece = self._socket.recv(4096)
            assert piece, answer
            answer += piece
        return answer


class HeldMail:
    """A session of SMTP after STARTTLS."""

    def __init__(self, port: int) -> None:
        self._session = smtplib.SMTP("127.0.0.1", port, local_hostname="localhost", timeout=_TIMEOUT_S)
        self._session.starttls(context=_context())

    def finish(self) -> bytes:
        """Send NOOP; its reply."""
        code, text = self._session.noop()
        self._session.close()
        return b"%d %b" % (code, text)


class HeldMailbox:
    """A session of IMAP after STARTTLS and the login."""

    def __init__(self, port: int) -> None:
        self._session = imaplib.IMAP4("127.0.0.1", port, timeout=_TIMEOUT_S)
        self._session.starttls(_context())
        self._session.login("anybody", "any password")

    def finish(self) -> bytes:
        """Send NOOP; its reply."""
        result, _ = self._session.noop()
        self._session.shutdown()
        return result.encode()


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)


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
