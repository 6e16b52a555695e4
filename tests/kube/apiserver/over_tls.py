"""A server behind TLS, and clients that speak to it in bytes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from certwright.app import tls_identity
from certwright.kube.apiserver.auth.authentication import Authenticator, StaticTokens
from certwright.kube.apiserver.http.https import HttpsServer, serve_https
from certwright.kube.apiserver.http.protocol import HttpProtocol
from certwright.kube.apiserver.http.response_writer import Unread
from certwright.kube.util.http_messages import Handler, Identity
from kube.apiserver.callers import ADMIN, Api, StartApi
from support.waiting import turns

USERS = StaticTokens({name: Identity(name) for name in ("greedy", "polite")} | {"admin": ADMIN})
FOR_EVER = 60.0


@dataclass(slots=True)
class Served:
    """A server behind TLS, a session of its administrator, and other connections to it."""

    api: Api
    face: HttpsServer
    identity: tls_identity.ServingIdentity
    session: aiohttp.ClientSession
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://127.0.0.1:{self.face.port}"

    @property
    def connections(self) -> list[HttpProtocol]:
        """The connections as the server sees them."""
        return self.face.connections

    @property
    def unread(self) -> Unread:
        """What clients have not read."""
        return self.face.unread

    def tls(self) -> ssl.SSLContext:
        """How to connect."""
        return trusting(self.identity)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that takes in little before it is read."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.face.port))
        reader, writer = await asyncio.open_connection(
            sock=raw, ssl=self.tls(), server_hostname="127.0.0.1", limit=4096
        )
        self.writers.append(writer)
        return reader, writer

    async def send(self, sent: bytes) -> asyncio.StreamReader:
        """The answers on a new connection on which this is sent."""
        reader, writer = await self.connect()
        writer.write(sent)
        return reader

    async def close(self) -> None:
        """End all connections, and the server."""
        for writer in self.writers:
            writer.transport.abort()
        await self.face.close()
        await turns()


@asynccontextmanager
async def served(
    start_api: StartApi,
    folder: Path,
    around: Callable[[Handler], Handler] = lambda handler: handler,
    authenticator: Authenticator = USERS,
    client_ca_file: Path | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """`options`: those of `serve_https`."""
    api = await start_api(authenticator=authenticator)
    identity = tls_identity.load_or_make(tls_identity.Settings(folder, "127.0.0.1"), now=datetime.now(UTC))
    face = await serve_https(
        around(api.server.handle),
        host="127.0.0.1",
        port=0,
        certfile=identity.cert_path,
        keyfile=identity.key_path,
        client_ca_file=client_ca_file,
        **options,
    )
    connector = aiohttp.TCPConnector(ssl=trusting(identity))
    headers = {"authorization": "Bearer admin"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        it = Served(api, face, identity, session)
        try:
            yield it
        finally:
            await it.close()


def trusting(identity: tls_identity.ServingIdentity) -> ssl.SSLContext:
    """The TLS settings of a client that trusts the server's CA."""
    return ssl.create_default_context(cadata=identity.ca_pem.decode())


def head(method: str, target: str, **headers: str) -> bytes:
    """The beginning of a request."""
    fields = {"host": "x", "authorization": "Bearer admin"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection, in good order or not."""
    async with asyncio.timeout(FOR_EVER):
        try:
            while await reader.read(65536):
                continue
        except (ConnectionError, ssl.SSLError):
            pass
    return True
