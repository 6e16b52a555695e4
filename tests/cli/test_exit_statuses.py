"""docs/reference/environment.md: the exit statuses are those of processes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from cli.calls import Process
from house.reference.environment import STATUSES

Start = Callable[..., Process]

_NEVER_CLOSED = """
import asyncio
from certwright import app

async def close(server):
    print("closing", flush=True)
    await asyncio.sleep(60)

app.RunningServer.close = close
"""


def test_the_reference_has_the_exit_statuses_of_processes_and_no_other(start: Start, tmp_path: Path) -> None:
    server = Process("serve", "--listen", "127.0.0.1:0", cwd=tmp_path, prologue=_NEVER_CLOSED)
    try:
        assert server.line().startswith("certwright is ready at ")
        watch = start("get", "namespaces", "--watch")
        watch.lines_until("default")
        watch.kill(signal.SIGINT)
        statuses = [
            start("--version").rest().status,
            start("get", "certificates", "--kubeconfig", "none").rest().status,
            start("nosuch").rest().status,
            watch.rest().status,
        ]
        server.kill(signal.SIGTERM)
        server.lines_until("closing")
        server.kill(signal.SIGTERM)
        statuses.append(server.rest().status)
    finally:
        server.close()
    assert [str(status) for status in statuses] == list(STATUSES)
