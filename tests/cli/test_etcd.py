"""`serve --store etcd://…`: several servers, one store; it moves from SQLite to etcd and back."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from click.testing import CliRunner

from certwright.app.encryption import BUCKETS, KeyFile
from certwright.cli.main import program
from certwright.kube.api import conditions
from certwright.kube.api.kinds import Kind
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.kube.store.backup_file import BackupReader
from certwright.kube.store.contract import Key
from certwright.kube.store.envelope import Seal
from certwright.resources.certificate import Certificate
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from cli.calls import EXAMPLES, PATIENT, Process, Start, serve
from support.etcd import Etcd, running_etcd
from support.programs import free_port


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    with running_etcd(tmp_path) as server:
        yield server


KEY = ("--encryption-key-file", "shared.key")


def served(start: Start, etcd: Etcd, name: str, *flags: str) -> Process:
    """A server that is ready, with a directory of its own."""
    return serve(start, "--data-dir", name, "--store", etcd.url, *KEY, *flags)


def test_two_servers_share_one_store_and_one_of_them_issues(start: Start, etcd: Etcd, tmp_path: Path) -> None:
    one, two = served(start, etcd, "one"), served(start, etcd, "two")
    beside = ("--kubeconfig", "two/kubeconfig")
    applied = start("apply", "-f", str(EXAMPLES / "quickstart.yaml"), "--kubeconfig", "one/kubeconfig")
    assert applied.rest().status == 0
    done = start("wait", "certificates", "--all", "--for=condition=Ready", *PATIENT, *beside).rest()
    assert done.status == 0, done.err
    # The first one goes; what it did not get to is done by the other.
    one.end(signal.SIGTERM)
    assert start("renew", "web", "-n", "default", *beside).rest().status == 0
    done = start("wait", "certificates", "--all", "--for=condition=Ready", *PATIENT, *beside).rest()
    assert done.status == 0, done.err
    two.end(signal.SIGTERM)


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
    alone = serve(start, "--data-dir", "alone")
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


def test_without_hpack_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "hpack.py").write_text("raise ImportError('no hpack here')")
    command = [sys.executable, "-m", "certwright", "serve", "--store", "etcd://127.0.0.1:1"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "install certwright[etcd]" in ended.stderr


def test_without_etcd_its_library_is_not_loaded(tmp_path: Path) -> None:
    code = "import sys; from certwright import app; print('hpack' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "False\n"


T = TypeVar("T", Certificate, CertificateRequest)

ENCRYPTION_KEY = ("--encryption-key-file", "one/encryption.key")
# Else the second server would wait until the Lease of the killed one has expired (60 s).
ALONE = ("--leader-elect", "false")
REQUESTS = "cert-manager.io/certificaterequests"
EACH, LATE = 25, 4


def yaml(kind: str, name: str, spec: dict[str, object]) -> str:
    """One object in the namespace `default`, as a document."""
    meta = {"name": name, "namespace": "default"}
    return json.dumps({"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": meta, "spec": spec})


def certificate(name: str, issuer: str, **fields: object) -> str:
    spec = {"secretName": name, "issuerRef": {"name": issuer}, "privateKey": {"algorithm": "ECDSA"}}
    return yaml("Certificate", name, {"dnsNames": [f"{name}.example.com"], **spec, **fields})


ISSUERS = (
    yaml("Issuer", "self", {"selfSigned": {}}),
    certificate("ca", "self", isCA=True, commonName="ca"),
    yaml("Issuer", "private", {"ca": {"secretName": "ca"}}),
)
FIRST = [certificate(f"first-{n}", "private") for n in range(EACH)]
SECOND = [certificate(f"second-{n}", "private") for n in range(EACH)]
# Their requests wait until this issuer exists, so they are in progress at both moves.
PENDING = [certificate(f"late-{n}", "late") for n in range(LATE)]
LATE_ISSUER = yaml("Issuer", "late", {"ca": {"secretName": "ca"}})


def call(*words: str, stdin: str = "") -> str:
    """Run a command that succeeds, in this process; what it printed."""
    done = CliRunner().invoke(program, list(words), input=stdin, prog_name="certwright")
    assert done.exit_code == 0, done.output
    return done.stdout


def apply(folder: str, *documents: str) -> None:
    """Apply these objects at the server of a data directory."""
    call("apply", "-f", "-", "--kubeconfig", f"{folder}/kubeconfig", stdin="\n---\n".join(documents))


def stopped(process: Process) -> None:
    """End a server, whatever it is doing; it may log what it could not finish."""
    process.kill(signal.SIGTERM)
    outcome = process.rest()
    assert outcome.status == 0, outcome.err


async def until(folder: str, kind: Kind[T], number: int, matches: Callable[[T], bool]) -> None:
    """Return when so many objects match."""
    client = Client(connect(load(Path(folder) / "kubeconfig")), user_agent="test")
    names = set[str]()
    try:
        async with (
            asyncio.timeout(200),
            aclosing(client.watch(kind, "default", resource_version="")) as watch,
        ):
            async for batch in watch:
                names |= {event.object.metadata.name for event in batch if matches(event.object)}
                if len(names) >= number:
                    return
        raise AssertionError(f"the watch ended; until then matched: {names}")
    finally:
        await client.close()


def is_pending(request: CertificateRequest) -> bool:
    """Whether it is a request of the Certificates whose issuer is missing."""
    return request.metadata.name.startswith("late-")


def is_issued(certificate: Certificate, prefix: str) -> bool:
    """Whether it is a Ready Certificate of that prefix."""
    is_ready = conditions.is_true(certificate.status.conditions, "Ready")
    return is_ready and certificate.metadata.name.startswith(prefix)


def rows(file: str) -> dict[Key, tuple[dict[str, object], dict[str, object]]]:
    """The Certificates, requests and Secrets in a backup: metadata and the rest, by their keys."""
    backup = BackupReader(Path(file))
    seal = Seal(BUCKETS, KeyFile(Path("one/encryption.key")))
    assert backup.header.ring is not None
    seal.adopt(backup.header.ring)
    buckets = ("cert-manager.io/certificates", REQUESTS, "secrets")
    opened = (seal.decrypt_row(row) for row in backup.rows() if row.key.bucket in buckets)
    return {row.key: (_parse(row.meta), _parse(b"{%b}" % row.body)) for row in opened}


def _parse(text: bytes) -> dict[str, object]:
    return msgspec.json.decode(text, type=dict[str, object])


def issued(file: str) -> dict[Key, dict[str, object]]:
    """What was issued when a backup was made: the contents of TLS Secrets and of answered requests."""
    return {
        key: body
        for key, (_, body) in rows(file).items()
        if body.get("type") == "kubernetes.io/tls"
        or (key.bucket == REQUESTS and '"certificate":' in json.dumps(body).replace(" ", ""))
    }


def pending(file: str) -> dict[Key, object]:
    """The uids of the requests that are not answered."""
    answered = issued(file)
    return {
        key: meta["uid"]
        for key, (meta, _) in rows(file).items()
        if key.bucket == REQUESTS and key not in answered
    }


def test_a_store_moves_to_etcd_and_back_while_certificates_are_issued(
    start: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def served(folder: str, *flags: str) -> Process:
        return serve(start, "--data-dir", folder, *ENCRYPTION_KEY, *ALONE, *flags)

    with running_etcd(tmp_path) as etcd:
        on_etcd = ("--store", etcd.url, "--etcd-prefix", "/moved")
        one = served("one")
        apply("one", *ISSUERS, *PENDING)
        asyncio.run(until("one", CERTIFICATE_REQUESTS, LATE, is_pending))
        apply("one", *FIRST)
        asyncio.run(until("one", CERTIFICATES, 5, partial(is_issued, prefix="first")))
        one.kill(signal.SIGKILL)
        one.rest()
        call("backup", "--data-dir", "one", *ENCRYPTION_KEY, "one.backup")
        restored = call("restore", "--data-dir", "two", *on_etcd, *ENCRYPTION_KEY, "one.backup")
        assert shlex.join(("serve", "--data-dir", "two", *on_etcd, *ENCRYPTION_KEY)) in restored
        two = served("two", *on_etcd)
        apply("two", *SECOND)
        asyncio.run(until("two", CERTIFICATES, 5, partial(is_issued, prefix="second")))
        stopped(two)
        call("backup", "--data-dir", "two", *on_etcd, *ENCRYPTION_KEY, "two.backup")
    call("restore", "--data-dir", "three", *ENCRYPTION_KEY, "two.backup")
    three = served("three")
    apply("three", LATE_ISSUER)
    everything = ("wait", "certificates", "--all", "-n", "default", "--for=condition=Ready", *PATIENT)
    call(*everything, "--kubeconfig", "three/kubeconfig")
    stopped(three)
    call("backup", "--data-dir", "three", *ENCRYPTION_KEY, "three.backup")

    before, between, after = map(issued, ("one.backup", "two.backup", "three.backup"))
    assert len(before) >= 5
    assert before.items() <= between.items() <= after.items(), "issued again, or lost"
    late = {key: uid for key, uid in pending("one.backup").items() if key.name.startswith("late-")}
    assert len(late) == LATE
    assert late.items() <= pending("two.backup").items()
    final = rows("three.backup")
    assert {key: meta["uid"] for key, (meta, _) in final.items() if key in late} == late
    assert sorted(key.name for key in final if key.bucket == REQUESTS) == sorted(
        f"{key.name}-1" for key in final if key.bucket == "cert-manager.io/certificates"
    )
    assert sum(key.bucket == "secrets" and key in after for key in final) == 1 + 2 * EACH + LATE
