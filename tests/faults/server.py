"""`certwright serve` as strangers meet it: over TLS, from outside, killed and started again at will."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from certwright.kube.client.kubeconfig import load
from support.programs import free_port, spawn, stop

GONE = (aiohttp.ClientError, ConnectionError, asyncio.TimeoutError)
"""What a client sees of a server that is dead, or dying."""
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
READY_WITHIN_S = 150.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(slots=True)
class Server:
    """A server without controllers, on the same port each time. `through`: what its command is put behind."""

    folder: Path
    flags: tuple[str, ...] = ()
    through: tuple[str, ...] = (sys.executable, "-m", "certwright")
    deaths: int = 0
    up: asyncio.Event = field(default_factory=asyncio.Event)
    process: subprocess.Popen[bytes] | None = None
    _port: int = field(default_factory=free_port)
    _session: aiohttp.ClientSession | None = None

    @property
    def log(self) -> Path:
        return self.folder / "serve.log"

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        words = ("serve", "--data-dir", str(self.folder / "data"), "--listen", f"127.0.0.1:{self._port}")
        before = self._readies()
        with self.log.open("ab") as out:
            self.process = spawn((*self.through, *words, "--controllers", "", *self.flags), out)
        deadline = time.monotonic() + READY_WITHIN_S
        while self._readies() == before:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            await asyncio.sleep(0.02)
        if self._session is None:
            self._session = self._connect()
        self.up.set()

    def _readies(self) -> int:
        return self.log.read_text().count("certwright is ready at ") if self.log.exists() else 0

    def _connect(self) -> aiohttp.ClientSession:
        known = load(self.folder / "data" / "kubeconfig")
        tls = ssl.create_default_context(cadata=known.ca_pem.decode())
        headers = {"authorization": f"Bearer {known.token}"}
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        return aiohttp.ClientSession(f"https://127.0.0.1:{self._port}", connector=connector, headers=headers)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_pem(self) -> str:
        """The CA of its certificate."""
        return load(self.folder / "data" / "kubeconfig").ca_pem.decode()

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "it has been started"
        return self._session

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request, as JSON. Raises one of `GONE`."""
        limit = aiohttp.ClientTimeout(total=200)
        async with self.session.request(method, path, json=body, headers=headers, timeout=limit) as answer:
            return Answer(answer.status, await answer.text())

    def kill(self) -> None:
        """End it at once, as a loss of power would."""
        self.up.clear()
        if self.process is not None:
            stop(self.process)
            self.process = None
            self.deaths += 1

    async def close(self) -> None:
        self.kill()
        if self._session is not None:
            await self._session.close()


@asynccontextmanager
async def running(folder: Path, *flags: str) -> AsyncIterator[Server]:
    """A server that is ready."""
    server = Server(folder, flags)
    try:
        await server.start()
        yield server
    finally:
        await server.close()


def config_map(name: str, *, revision: str = "", **data: str) -> dict[str, Any]:
    meta = {"name": name} | ({"resourceVersion": revision} if revision else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
