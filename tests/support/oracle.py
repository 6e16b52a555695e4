"""The oracle: a Kubernetes API server of the real code base, with an etcd of its own, on loopback.

`apiextensions-apiserver` serves CustomResourceDefinitions and what they define, and nothing else: no
namespaces, no RBAC, no group list. `make oracle` builds it and the etcd; without them tests are skipped.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
import trustme

_ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("CERTWRIGHT_TOOLS") or _ROOT / ".tools") / "bin"
"""Where `make oracle` puts the programs."""
_STARTS_WITHIN_S = 60.0
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
# What the reference cannot have: it knows no namespaces, and nobody serves its webhooks or its policies.
_NO_ADMISSION = (
    "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,"
    "MutatingAdmissionPolicy,ValidatingAdmissionPolicy"
)
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{port}", insecure-skip-tls-verify: true}}}}]
users: [{{name: u, user: {{client-certificate: {certificate}, client-key: {certificate}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


def tool(program: str) -> Path:
    """A program that `make oracle` builds. Without it the test is skipped, or fails where CI demands it."""
    path = TOOLS / program
    if not path.exists():
        reason = f"{path} is not there; run `make oracle`"
        if os.environ.get("CERTWRIGHT_REQUIRE_REAL") == "1":
            pytest.fail(f"{reason} (CERTWRIGHT_REQUIRE_REAL=1 demands it)")
        pytest.skip(reason)
    return path


@dataclass(frozen=True, slots=True)
class Oracle:
    """A reference server that is running: its address, and how to be its administrator.

    `client_tls` shows a certificate of `ca_path`'s authority for CN=admin, O=system:masters.
    """

    url: str
    client_tls: ssl.SSLContext
    ca_path: Path
    certificate_path: Path


def free_port() -> int:
    """A port of loopback that nobody had a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> None:
    """In the child, before exec: end when the test process does, however that happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _spawn(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # preexec_fn is safe here: it runs before any thread of ours starts, and only calls prctl.
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        preexec_fn=_die_with_parent,
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{process.args!r} does not listen on port {port}: {tail}")


@contextlib.contextmanager
def running_etcd(folder: Path) -> Iterator[str]:
    """An etcd of one member, empty; the address that clients use."""
    port, peers = free_port(), free_port()
    log = folder / "etcd.log"
    with log.open("wb") as out:
        process = _spawn([str(tool("etcd")), str(folder / "etcd"), str(port), str(peers)], out)
        try:
            _wait_for_port(port, process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(process)


def _credentials(folder: Path) -> tuple[Path, Path]:
    """The authority's certificate, and one file with the administrator's certificate and key."""
    ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
    # Go refuses trustme's critical extension for alternative names when it is empty, hence one name.
    client = ca.issue_cert(
        "admin.test",
        common_name="admin",
        organization_name="system:masters",
        key_type=trustme.KeyType.ECDSA,
    )
    ca_path, certificate_path = folder / "ca.crt", folder / "admin.pem"
    ca.cert_pem.write_to_path(ca_path)
    client.private_key_and_cert_chain_pem.write_to_path(certificate_path)
    return ca_path, certificate_path


def client_context(certificate: Path) -> ssl.SSLContext:
    """TLS for a client that shows `certificate` and trusts whoever answers on loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate)
    return context


@contextlib.contextmanager
def running_oracle() -> Iterator[Oracle]:
    """The reference server over an empty etcd; both end with the block."""
    server = tool("apiextensions-apiserver")
    with tempfile.TemporaryDirectory(prefix="oracle-") as name:
        folder = Path(name)
        ca_path, certificate_path = _credentials(folder)
        with running_etcd(folder) as etcd:
            port, log = free_port(), folder / "server.log"
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(_KUBECONFIG.format(port=port, certificate=certificate_path))
            command = [str(server), *_flags(folder, etcd, port, ca_path, kubeconfig)]
            with log.open("wb") as out:
                process = _spawn(command, out)
                try:
                    _wait_for_port(port, process, log)
                    tls = client_context(certificate_path)
                    yield Oracle(f"https://127.0.0.1:{port}", tls, ca_path, certificate_path)
                finally:
                    _stop(process)


def _flags(folder: Path, etcd: str, port: int, ca_path: Path, kubeconfig: Path) -> list[str]:
    return [
        f"--etcd-servers={etcd}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--client-ca-file={ca_path}",
        f"--cert-dir={folder}",
        "--authentication-skip-lookup",
        "--enable-priority-and-fairness=false",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--disable-admission-plugins={_NO_ADMISSION}",
    ]
