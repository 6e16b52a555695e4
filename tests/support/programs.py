"""Real programs that tests start on loopback: etcd, Kubernetes' API server, Pebble, BIND.

They end with the test process, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

_ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("CERTWRIGHT_TOOLS") or _ROOT / ".tools") / "bin"
"""Where `make oracle` and `make pebble` put the programs."""
_STARTS_WITHIN_S = 60.0
_DYING_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""Of util-linux: becomes the program that follows, which is killed when the test process ends, however."""


def tool(program: str, *, made_by: str = "oracle") -> Path:
    """A program that `make oracle` (or another target) builds. Without it the test is skipped, or fails where
    CI demands it."""
    path = TOOLS / program
    if not path.exists():
        reason = f"{path} is not there; run `make {made_by}`"
        if os.environ.get("CERTWRIGHT_REQUIRE_REAL") == "1":
            pytest.fail(f"{reason} (CERTWRIGHT_REQUIRE_REAL=1 demands it)")
        pytest.skip(reason)
    return path


def free_port() -> int:
    """A port of loopback that nobody had a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def spawn(
    command: Sequence[str], log: IO[bytes], *, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to `log`; `env` is added to the environment."""
    # Not by `preexec_fn`: to run Python after a fork is not safe with the threads of grpcio about.
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


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the program listens on that TCP port. Raises `RuntimeError` with the end of its log."""
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{process.args!r} does not listen on port {port}: {tail}")
