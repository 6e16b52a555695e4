"""A real etcd, of one member or several, that can be killed, stopped for a while, and started again."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.programs import free_port, spawn, stop, wait_for_port
from support.real import require

# So that what the API server takes, etcd takes as well.
MAX_REQUEST_BYTES = 8 << 20


class Etcd:
    """Debian's etcd (`/usr/bin/etcd`), or another one of its command line. `tls`: flags for the listener of
    clients, which then speaks TLS. `cluster`: all members, where there are others."""

    def __init__(
        self, folder: Path, *, name: str = "one", tls: tuple[str, ...] = (), flags: tuple[str, ...] = ()
    ) -> None:
        self._program = require("etcd")
        self._folder = folder
        self._name = name
        self._tls = tls
        self._flags = flags
        self.peers = f"{name}=http://127.0.0.1:{free_port()}"
        self.cluster = self.peers
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def member(self) -> str:
        """Where clients ask: `HOST:PORT`."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """What `--store` takes."""
        return f"{'etcds' if self._tls else 'etcd'}://{self.member}"

    @property
    def pid(self) -> int:
        """Its process. Raises `RuntimeError` where it does not run."""
        if self._process is None:
            raise RuntimeError(f"etcd {self._name} does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it listens."""
        scheme = "https" if self._tls else "http"
        peers = self.peers.partition("=")[2]
        command = [
            self._program,
            f"--name={self._name}",
            f"--data-dir={self._folder / self._name}",
            f"--listen-client-urls={scheme}://{self.member}",
            f"--advertise-client-urls={scheme}://{self.member}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster={self.cluster}",
            f"--max-request-bytes={MAX_REQUEST_BYTES}",
            "--logger=zap",
            *self._tls,
            *self._flags,
        ]
        log = self._folder / f"{self._name}.log"
        with log.open("ab") as out:
            self._process = spawn(command, out)
        wait_for_port(self.port, self._process, log)

    def kill(self) -> None:
        """End it at once, as a loss of power would."""
        if self._process is not None:
            stop(self._process)
            self._process = None

    def pause(self) -> None:
        """Let it stand still, with its connections open."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        # On a busy machine its threads go on until the one that got the signal has its turn.
        tasks = Path(f"/proc/{self._process.pid}/task")
        while any(
            task.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()
        ):
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def maintain(self, what: str, **fields: str) -> Any:
        """The answer of its maintenance API, through its JSON gateway. Without TLS only."""
        request = urllib.request.Request(
            f"http://{self.member}/v3/maintenance/{what}", json.dumps(fields).encode()
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - http on loopback
            return json.load(answer)

    def close(self) -> None:
        if self._process is not None:
            self.resume()
            stop(self._process)
            self._process = None

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@contextlib.contextmanager
def running_etcd(folder: Path, *, tls: tuple[str, ...] = (), flags: tuple[str, ...] = ()) -> Iterator[Etcd]:
    """An etcd over a new folder."""
    etcd = Etcd(folder, tls=tls, flags=flags)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.close()


@contextlib.contextmanager
def running_cluster(folder: Path, members: int = 3) -> Iterator[list[Etcd]]:
    """An etcd of several members over a new folder."""
    etcds = [Etcd(folder, name=f"m{number}") for number in range(members)]
    try:
        for etcd in etcds:
            etcd.cluster = ",".join(other.peers for other in etcds)
            etcd.start()
        yield etcds
    finally:
        for etcd in etcds:
            etcd.close()
