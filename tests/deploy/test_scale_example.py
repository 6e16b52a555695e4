"""The files of examples/scale: everything they start runs, and one of each may end."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
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


def commands() -> dict[str, str]:
    """The lines of the Procfile, by name."""
    lines = (SCALE / "Procfile").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if not line.startswith("#"))


class Running:
    """The processes of the Procfile, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = dict(
            line.split("=", 1) for line in (SCALE / "scale.env").read_text().splitlines() if "=" in line
        )
        settings = {name: str(free_port()) for name in settings} | {"DIR": str(folder)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # Programs that read a Procfile give each process a PORT of its own.
        self._environment = {**os.environ, **settings, "PATH": path, "PORT": "1"}
        self.ports = settings
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every line of the Procfile."""
        for name in commands():
            self.start_one(name)

    def start_one(self, name: str) -> None:
        """Start one line of the Procfile."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["/bin/sh", "-c", commands()[name]], cwd=SCALE, env=self._environment, stdout=log, stderr=log
            )

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one, e.g. SIGSTOP."""
        self._processes[name].send_signal(number)

    def end(self, name: str, how: signal.Signals) -> None:
        """End one: by SIGKILL as a loss of power would, by SIGTERM in good order."""
        process = self._processes.pop(name)
        process.send_signal(how)
        process.wait()

    def stop(self) -> None:
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


UNITS = SCALE / "systemd"
NUMBER = 10
PATIENCE_S = 120


async def issue(client: Client, prefix: str) -> int:
    """Create certificates until all are Ready; returns the number of requests that failed."""
    names = {f"{prefix}-{number}" for number in range(NUMBER)}
    missing, errors = set(names), 0
    while names:
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
            names -= ready
        except (ApiError, Unreachable):
            errors += 1
            listed_names = await _names(client)
            missing -= listed_names
        await asyncio.sleep(0.2)
    return errors


async def _names(client: Client) -> set[str]:
    try:
        return {
            certificate.metadata.name for certificate in (await client.list(CERTIFICATES, "default")).items
        }
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


def unit_commands() -> dict[str, list[str]]:
    """What the units of the target start, by the names of the Procfile, with its variables."""
    target = (UNITS / "certwright-scale.target").read_text()
    command_lines = {}
    for unit, instance in re.findall(r"scale-(\w+)(?:@(\d))?\.service", target):
        text = (UNITS / f"scale-{unit}{'@' if instance else ''}.service").read_text()
        command = re.search(r"^ExecStart=/usr/bin/env (.*)$", text, re.M)
        assert command is not None, unit
        words = command[1].replace("%i", instance).replace("${STATE_DIRECTORY}", "$DIR")
        command_lines[unit + instance] = shlex.split(re.sub(r"\$\{(\w+)\}", r"$\1", words))
    return command_lines


def test_the_systemd_units_start_what_the_procfile_starts() -> None:
    expected = {name: shlex.split(line.rpartition("exec ")[2]) for name, line in commands().items()}
    assert unit_commands() == expected


def test_systemd_understands_the_units() -> None:
    require("systemd-analyze")
    units = sorted(UNITS.iterdir())
    assert len(units) == 5
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
