"""SIGTERM ends a server that has not become ready."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

from cli.calls import Process
from support.programs import free_port
from support.waiting import until_so


def test_sigterm_ends_a_server_that_waits_for_etcd_at_its_start(tmp_path: Path) -> None:
    words = ("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    etcd = f"etcd://127.0.0.1:{free_port()}"
    with closing(Process(*words, "--store", etcd, cwd=tmp_path)) as process:
        until_so((tmp_path / "data" / "lock").exists)
        process.end(signal.SIGTERM)
