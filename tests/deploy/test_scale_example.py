"""The files of examples/scale: everything they start runs, and one of each may end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from certwright.cli import access
from certwright.kube.api import codec, conditions
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.kube.client.rest import Client
from certwright.resources.table import CERTIFICATES, ISSUERS
from support.programs import free_port
from support.real import require
from support.waiting import until

SCALE = Path(__file__).parents[2] / "examples" / "scale"
NUMBER = 10
PATIENCE_S = 120


class Running:
    """The processes of the Procfile, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = dict(
            line.split("=", 1) for line in (SCALE / "scale.env").read_text().splitlines() if "=" in line
        )
        settings = {name: str(free_port()) for name in settings} | {"DIR": str(folder)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, **settings, "PATH": path}
        self.ports = settings
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every line of the Procfile."""
        for line in (SCALE / "Procfile").read_text().splitlines():
            if not line.startswith("#"):
                name, command = line.split(": ", 1)
                with (self.folder / f"{name}.log").open("wb") as log:
                    self._processes[name] = subprocess.Popen(
                        ["/bin/sh", "-c", command], cwd=SCALE, env=self._environment, stdout=log, stderr=log
                    )

    def end(self, name: str, how: signal.Signals) -> None:
        """End one: by SIGKILL as a loss of power would, by SIGTERM in good order."""
        process = self._processes.pop(name)
        process.send_signal(how)
        process.wait()

    def stop(self) -> None:
        """End all."""
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
        for process in self._processes.values():
            process.wait()


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Everything, until the end of the block."""
    processes = Running(folder)
    try:
        processes.start()
        yield processes
    finally:
        processes.stop()


async def client_of(folder: Path) -> Client:
    """A client of the address of HAProxy, once a shard has made its kubeconfig."""
    kubeconfig = folder / "kubeconfig1"
    await until(lambda: kubeconfig.exists() and kubeconfig.stat().st_size > 0)
    choice = access.choose(kubeconfig, os.environ, folder)
    return Client(access.connect(choice, access.load(choice, None)), user_agent="test")


async def issue(client: Client, prefix: str) -> int:
    """Create certificates until all are Ready; returns the number of requests that failed."""
    wanted = {f"{prefix}-{number}" for number in range(NUMBER)}
    missing, errors = set(wanted), 0
    while wanted:
        try:
            for name in sorted(missing):
                spec = {"secretName": name, "dnsNames": [f"{name}.example"], "issuerRef": {"name": "self"}}
                made = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
                await client.create(CERTIFICATES, codec.from_dict(CERTIFICATES, made))
                missing.discard(name)
            listed = await client.list(CERTIFICATES, "default")
            ready = {
                c.metadata.name for c in listed.items if conditions.is_true(c.status.conditions, "Ready")
            }
            wanted -= ready
        except (ApiError, Unreachable):
            errors += 1
            listed_names = await _names(client)
            missing -= listed_names
        await asyncio.sleep(0.2)
    return errors


async def _names(client: Client) -> set[str]:
    try:
        return {one.metadata.name for one in (await client.list(CERTIFICATES, "default")).items}
    except (ApiError, Unreachable):
        return set()


@pytest.mark.real("etcd")
async def test_one_of_each_may_end_under_load(tmp_path: Path) -> None:
    require("etcd")
    require("haproxy")
    async with AsyncExitStack() as stack:
        processes = stack.enter_context(running(tmp_path))
        async with asyncio.timeout(PATIENCE_S):
            client = await client_of(tmp_path)
            stack.push_async_callback(client.close)
            issuer = {"metadata": {"name": "self", "namespace": "default"}, "spec": {"selfSigned": {}}}
            while True:
                try:
                    await client.create(ISSUERS, codec.from_dict(ISSUERS, issuer))
                    break
                except (ApiError, Unreachable):
                    await asyncio.sleep(0.2)
            assert await issue(client, "before") == 0
            loaded = asyncio.create_task(issue(client, "during"))
            processes.end("etcd1", signal.SIGKILL)
            processes.end("api1", signal.SIGKILL)
            processes.end("shard2", signal.SIGTERM)
            errors = await loaded
    assert errors <= 5
