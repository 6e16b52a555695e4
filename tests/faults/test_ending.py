"""SIGTERM ends a server that has not become ready, or whose store is damaged."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.calls import Process
from support.programs import free_port
from support.waiting import until_so


def test_sigterm_ends_a_server_that_waits_for_etcd_at_its_start(tmp_path: Path) -> None:
    words = ("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    etcd = f"etcd://127.0.0.1:{free_port()}"
    with closing(Process(*words, "--store", etcd, cwd=tmp_path)) as process:
        until_so((tmp_path / "data" / "lock").exists)
        process.end(signal.SIGTERM)


@pytest.mark.parametrize("part", ["meta", "body"])
def test_a_server_with_a_damaged_secret_starts_saves_the_rest_and_ends(tmp_path: Path, part: str) -> None:
    words = ("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with closing(Process(*words, cwd=tmp_path)) as process:
        assert process.line().startswith("certwright is ready")
        _create_secret(tmp_path, "torn")
        process.end(signal.SIGTERM)
    with closing(sqlite3.connect(tmp_path / "data" / "store.sqlite")) as store, store:
        assert store.execute(_FLIP[part]).rowcount == 1
    with closing(Process(*words, cwd=tmp_path)) as process:
        assert process.line().startswith("certwright is ready")
        process.kill(signal.SIGTERM)
        ended = process.rest()
    assert ended.status == 0
    # The body of a Secret that nobody asks for is not read.
    named = ended.err.count("the stored row default/torn of secrets cannot be read")
    assert named == (1 if part == "meta" else 0)
    with closing(Process("backup", "--data-dir", "data", "all.backup", cwd=tmp_path)) as process:
        saved = process.rest()
    assert saved.status == 1
    assert "saved in all.backup" in saved.out
    assert "warning: not saved: the stored row default/torn of secrets cannot be read" in saved.err
    assert (tmp_path / "all.backup").exists()


_FLIP = {
    "meta": "UPDATE rows SET meta = substr(meta, 1, length(meta) - 1) WHERE name = 'torn'",
    "body": "UPDATE rows SET body = substr(body, 1, length(body) - 1) WHERE name = 'torn'",
}


def _create_secret(folder: Path, name: str) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {"key": "value"},
    }
    (folder / "secret.yaml").write_text(json.dumps(secret))
    words = ("apply", "-f", "secret.yaml", "--kubeconfig", "data/kubeconfig")
    with closing(Process(*words, cwd=folder)) as process:
        assert process.rest().status == 0
