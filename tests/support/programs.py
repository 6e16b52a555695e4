"""Real programs that tests start on loopback: etcd, Kubernetes' API server, Pebble, BIND.

They end with the test process, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from support.real import missing

_ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("CERTWRIGHT_TOOLS") or _ROOT / ".tools") / "bin"
"""Where `make oracle` and `make pebble` put the programs."""
_STARTS_WITHIN_S = 150.0
_LOWEST_PORT, _BLOCK = 10_000, 256
_DYING_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""Of util-linux: becomes the program that follows, which is killed when the test process ends, however."""


def tool(program: str, *, made_by: str = "oracle") -> Path:
    """A program that `make oracle` (or another target) builds. Without it the test is skipped, or fails where
    CI demands it."""
    path = TOOLS / program
    if not path.exists():
        missing(f"{path} does not exist; run `make {made_by}`")
    return path


def environment_of(name: str) -> Path:
    """The virtual environment `.venv-NAME`, which `make NAME` makes. Without it the test is skipped, or fails
    where CI demands it."""
    path = _ROOT / f".venv-{name}"
    if not (path / ".done").exists():
        missing(f"{path} does not exist; run `make {name}`")
    return path


def free_port() -> int:
    """A port that nobody has at any address of this machine, and that nobody gets before it is used, however
    much later that is: it lies below those that the system hands out, in this process's own block."""
    ports = _ports_of(os.getpid())
    return next((port for port in itertools.islice(ports, _BLOCK) if _is_free(port)), None) or _handed_out()


@functools.cache
def _ports_of(process: int) -> Iterator[int]:
    """Those of the first block that no other process has, over and over; none where the system hands out
    about all that there are."""
    begins = range(_LOWEST_PORT, _least_handed_out() - _BLOCK, _BLOCK)
    # Not all from the same one on: processes that start together would meet.
    for begin in (begins[(number + process) % len(begins)] for number in range(len(begins))):
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", begin))
        except OSError:
            guard.close()
            continue
        guard.detach()  # It is held for as long as the process lives.
        return itertools.cycle(range(begin + 1, begin + _BLOCK))
    return iter(())


def _least_handed_out() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 32_768


def _is_free(port: int) -> bool:
    places = itertools.product(
        ((socket.AF_INET, ""), (socket.AF_INET6, "::")), (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    )
    for (family, address), kind in places:
        try:
            with socket.socket(family, kind) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # not where the machine has no IPv6
                return False
    return True


def _handed_out() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def spawn(
    command: Sequence[str], log: IO[bytes], *, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to `log`; `env` is added to the environment."""
    # Not by `preexec_fn`: to run Python after a fork is not safe with threads about.
    return subprocess.Popen(
        [*_DYING_WITH_PARENT, *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**os.environ, **(env or {})},
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill it, and wait until it is gone."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


@contextlib.contextmanager
def running(
    command: Sequence[str], log: Path, *ports: int, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, from when it listens on these ports, as `spawn` starts it; it ends with the block."""
    with log.open("wb") as out:
        process = spawn(command, out, env=env)
        try:
            for port in ports:
                wait_for_port(port, process, log)
            yield process
        finally:
            stop(process)


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the program listens on that TCP port. Raises `RuntimeError` with the end of its log."""

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    wait_for(listens, process, log, what=f"listen on port {port}")


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, *, what: str) -> None:
    """Return when the program is `ready`. Raises `RuntimeError` with the end of its log."""
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        if ready():
            return
        time.sleep(0.05)
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{process.args!r} does not {what}: {tail}")
