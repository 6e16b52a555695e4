"""`serve --store etcd://…`: several servers, one store."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.calls import EXAMPLES, PATIENT, Process
from support.etcd import Etcd, running_etcd
from support.programs import free_port

Start = Callable[..., Process]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An empty etcd."""
    with running_etcd(tmp_path) as server:
        yield server


KEY = ("--encryption-key-file", "shared.key")


def served(start: Start, etcd: Etcd, name: str, *flags: str) -> Process:
    """A server that is ready, with a directory of its own."""
    common = ("--listen", "127.0.0.1:0", "--store", etcd.url, *KEY)
    process = start("serve", "--data-dir", name, *common, *flags)
    line = process.line()
    assert line.startswith("certwright is ready at https://127.0.0.1:"), process.rest().err
    return process


def test_two_servers_share_one_store_and_one_of_them_issues(start: Start, etcd: Etcd, tmp_path: Path) -> None:
    one, two = served(start, etcd, "one"), served(start, etcd, "two")
    beside = ("--kubeconfig", "two/kubeconfig")
    applied = start("apply", "-f", str(EXAMPLES / "quickstart.yaml"), "--kubeconfig", "one/kubeconfig")
    assert applied.rest().status == 0
    done = start("wait", "certificates", "--all", "--for=condition=Ready", *PATIENT, *beside).rest()
    assert (done.status, done.err) == (0, "")
    # The first one goes; what it did not get to is done by the other.
    one.kill(signal.SIGTERM)
    ended = one.rest()
    assert (ended.status, ended.err) == (0, "")
    assert start("renew", "web", "-n", "default", *beside).rest().status == 0
    done = start("wait", "certificates", "--all", "--for=condition=Ready", *PATIENT, *beside).rest()
    assert (done.status, done.err) == (0, "")
    two.kill(signal.SIGTERM)
    ended = two.rest()
    assert (ended.status, ended.err) == (0, "")


def test_the_kubeconfig_of_one_server_is_good_for_the_other_of_its_installation(
    start: Start, etcd: Etcd, tmp_path: Path
) -> None:
    owned = ("--etcd-owner", "blue")
    served(start, etcd, "one", *owned)
    served(start, etcd, "two", *owned)
    another = ("--data-dir", "three", "--store", etcd.url, *KEY, "--etcd-owner", "green")
    refused = start("serve", "--listen", "127.0.0.1:0", *another).rest()
    assert refused.status == 1
    assert "holds the store of 'blue', and this server is not one of its servers" in refused.err
    texts = [(tmp_path / name / "kubeconfig").read_text() for name in ("one", "two")]
    assert texts[0] != texts[1]
    without_address = [re.sub(r"server: \S+", "", text) for text in texts]
    assert without_address[0] == without_address[1]
    for name in ("one", "two"):
        assert start("get", "issuers", "--kubeconfig", f"{name}/kubeconfig").rest().status == 0


def test_a_directory_of_another_store_is_refused(start: Start, etcd: Etcd, tmp_path: Path) -> None:
    alone = start("serve", "--data-dir", "alone", "--listen", "127.0.0.1:0")
    alone.line()
    alone.kill(signal.SIGTERM)
    alone.rest()
    served(start, etcd, "one")
    flags = ("--listen", "127.0.0.1:0", "--store", etcd.url)
    refused = start("serve", "--data-dir", "alone", *flags).rest()
    assert refused.status == 1
    assert "alone/encryption.key holds" in refused.err
    refused = start("serve", "--data-dir", "alone", *flags, *KEY).rest()
    assert refused.status == 1
    assert "pki/ca.crt is not the one that the servers on this store share" in refused.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--store", "etcd://"], "one member at least"),
        (["--store", "etcd://h:1/path"], "without paths"),
        (["--store", "etcds://h:1", "--etcd-certfile", "f"], "go together"),
        (["--store", "etcd://h:1", "--etcd-cafile", "f"], "etcds://"),
        (["--store", "etcd://h:1", "--etcd-user", "u"], "--etcd-password-file"),
        (["--etcd-user", "u"], "need --store etcd://"),
        (["--store", "etcd://h:1", "--etcd-prefix", "/"], "e.g. /certwright"),
    ],
)
def test_what_makes_no_sense_is_told(start: Start, flags: list[str], words: str) -> None:
    outcome = start("serve", "--listen", "127.0.0.1:0", *flags).rest()
    assert outcome.status in (1, 2)
    assert words in outcome.err


_IMPATIENT = """
import functools, runpy
from certwright.kube.store.etcd import client
client.Access = functools.partial(client.Access, patience_s=0.5)
runpy.run_module("certwright", run_name="__main__", alter_sys=True)
"""
"""The program with half a second instead of twenty until an etcd counts as unreachable."""


def test_an_etcd_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    words = ("serve", "--listen", "127.0.0.1:0", "--store", f"etcd://127.0.0.1:{free_port()}")
    command = [sys.executable, "-c", _IMPATIENT, *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 1
    assert "cannot be reached" in ended.stderr


def test_without_grpcio_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise ImportError('no grpc here')")
    command = [sys.executable, "-m", "certwright", "serve", "--store", "etcd://127.0.0.1:1"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "install certwright[etcd]" in ended.stderr


def test_without_etcd_grpc_is_not_loaded(tmp_path: Path) -> None:
    code = "import sys; from certwright import app; print('grpc' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "False\n"
