"""Which process works: `serve` holds cert-manager's Lease, and a restart takes its own over immediately."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import yaml

from certwright.app import opening
from cli.calls import AT_WORK, EXAMPLES, PATIENT, Process

Start = Callable[..., Process]
LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: cert-manager-controller, namespace: kube-system}
spec:
  holderIdentity: cert-manager-7d4b5
  leaseDurationSeconds: 3600
  acquireTime: "2026-01-01T00:00:00.000000Z"
  renewTime: "2026-01-01T00:00:00.000000Z"
"""


def holder(start: Start) -> str:
    """The holder of cert-manager's Lease."""
    outcome = start("get", "leases", "cert-manager-controller", "-n", "kube-system", "-o", "yaml").rest()
    return str((yaml.safe_load(outcome.out) or {}).get("spec", {}).get("holderIdentity", ""))


def test_serve_holds_the_lease_and_takes_its_own_over_after_a_kill(start: Start, tmp_path: Path) -> None:
    process = start("serve", "--listen", "127.0.0.1:0")
    process.line()
    before = holder(start)
    assert before == (tmp_path / "certwright-data" / "replica-identity").read_text().splitlines()[0]
    process.kill(signal.SIGKILL)
    process.rest()
    again = start("serve", "--listen", "127.0.0.1:0", "--log-level", "info")
    again.line()
    assert holder(start) == before
    assert start("apply", "-f", str(EXAMPLES / "quickstart.yaml")).rest().status == 0
    assert start("wait", "certs", "--all", "--for=condition=Ready", *PATIENT).rest().status == 0
    again.kill(signal.SIGTERM)
    assert "wait" not in again.rest().err


def test_serve_frees_the_lease_when_it_ends(start: Start) -> None:
    server = start("serve", "--listen", "127.0.0.1:0")
    server.line()
    server.end()
    api = start("serve", "--listen", "127.0.0.1:0", "--controllers", "")
    api.line()
    assert holder(start) == ""
    api.end()


def test_serve_beside_another_holder_serves_and_its_controllers_wait(start: Start, tmp_path: Path) -> None:
    (tmp_path / "lease.yaml").write_text(LEASE)
    api = start("serve", "--listen", "127.0.0.1:0", "--controllers", "")
    api.line()
    assert start("apply", "-f", "lease.yaml").rest().status == 0
    api.end()
    server = start("serve", "--listen", "127.0.0.1:0")
    assert server.line().startswith("certwright is ready at ")
    assert holder(start) == "cert-manager-7d4b5"
    server.kill(signal.SIGTERM)
    logged = server.rest().err
    assert "this server's controllers wait: cert-manager-7d4b5 holds the lease kube-system/" in logged
    always = start("serve", "--listen", "127.0.0.1:0", "--leader-elect=false")
    always.line()
    assert start("apply", "-f", str(EXAMPLES / "quickstart.yaml")).rest().status == 0
    assert start("wait", "certs", "--all", "--for=condition=Ready", *PATIENT).rest().status == 0
    always.end()


def test_controllers_with_a_name_take_their_lease_over_after_a_kill(start: Start) -> None:
    server = start("serve", "--listen", "127.0.0.1:0", "--controllers", "")
    server.line()
    flags = ("controllers", "--kubeconfig", "certwright-data/kubeconfig", "--identity", "node-1")
    first = start(*flags)
    assert first.line().startswith(AT_WORK)
    assert holder(start) == "node-1"
    first.kill(signal.SIGKILL)
    first.rest()
    again = start(*flags)
    assert again.line().startswith(AT_WORK)
    again.end()
    server.end()


def test_a_copy_of_a_data_directory_has_an_identity_of_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    identity = opening.replica_identity(one)
    assert opening.replica_identity(one) == identity
    shutil.copytree(one, two)
    assert opening.replica_identity(two) != identity
    (one / "replica-identity").write_text("nonsense")
    assert opening.replica_identity(one) != identity
