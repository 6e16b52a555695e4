"""The processes of examples/scale, in a folder of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certwright.cli import access
from certwright.kube.client.rest import Client
from support.programs import free_port
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
