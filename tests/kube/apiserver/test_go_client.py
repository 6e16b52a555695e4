"""Clients written in Go, on the newest client-go, against the server as users start it.

They send protobuf for built-in kinds, open informers with a watch that streams the list, and take no excuse.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.calls import running_server
from support.go import build

pytestmark = [pytest.mark.real("go"), pytest.mark.timeout(1200)]
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server with controllers; the value is its kubeconfig."""
    with running_server(tmp_path_factory.mktemp("go")) as file:
        yield file


def test_controllers_written_in_go_work(request: pytest.FixtureRequest) -> None:
    program = build("clients", "go-clients")
    kubeconfig = request.getfixturevalue("kubeconfig")
    outcome = subprocess.run(
        [str(program), str(kubeconfig)], capture_output=True, text=True, timeout=600, check=False
    )
    lines = outcome.stdout.splitlines()
    assert [line for line in lines if not line.startswith("ok ")] == [], outcome.stderr[-2000:]
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    assert len(lines) >= 45


@pytest.fixture
def kubectl(tmp_path: Path, request: pytest.FixtureRequest) -> Kubectl:
    """The newest kubectl, pointed at the server: words and perhaps `stdin` in, its output out."""
    program = build("kubectl", "kubectl")
    kubeconfig = request.getfixturevalue("kubeconfig")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)}

    def run(*words: str, stdin: str = "") -> str:
        outcome = subprocess.run(
            [str(program), *words],
            capture_output=True,
            text=True,
            env=environment,
            input=stdin,
            timeout=180,
            check=False,
        )
        assert outcome.returncode == 0, f"kubectl {' '.join(words)}: {outcome.stderr}"
        return outcome.stdout

    return run


def test_the_newest_kubectl_creates_built_in_kinds(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "made")
    for words in (
        "secret generic s --from-literal=a=b",
        "configmap c --from-literal=a=b",
        "serviceaccount robot",
        "role reader --verb=get,list --resource=secrets",
        "rolebinding reading --role=reader --serviceaccount=made:robot",
        "ingress web --rule=example.com/*=web:80",
        "service clusterip web --tcp=80:80",
    ):
        assert kubectl("create", *words.split(), "-n", "made").endswith(" created\n")
    shown = kubectl("get", "secrets,configmaps,serviceaccounts,roles,ingresses", "-n", "made", "-o", "name")
    assert {"secret/s", "configmap/c", "serviceaccount/robot", "ingress.networking.k8s.io/web"} <= set(
        shown.split()
    )
    assert kubectl("get", "secret", "s", "-n", "made", "-o", "jsonpath={.data.a}") == "Yg=="
    kubectl("delete", "namespace", "made", "--timeout=150s")


def test_the_newest_kubectl_asks_who_may_do_what(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "access")
    kubectl("create", "serviceaccount", "robot", "-n", "access")
    assert kubectl("create", "token", "robot", "-n", "access", "--duration=10m").count(".") == 2
    assert kubectl("auth", "can-i", "create", "secrets", "-n", "access") == "yes\n"
    assert "kubernetes-admin" in kubectl("auth", "whoami")
    assert "*.*" in kubectl("auth", "can-i", "--list", "-n", "access")
    kubectl("create", "clusterrole", "robots", "--verb=get", "--resource=pods")
    kubectl("create", "clusterrolebinding", "robots", "--clusterrole=robots", "--serviceaccount=access:robot")
    robot = "--as=system:serviceaccount:access:robot"
    assert kubectl("auth", "can-i", "get", "pods", robot, "-n", "access") == "yes\n"


MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {{name: applied}}
data: {{key: "{value}"}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {{name: ca}}
spec: {{selfSigned: {{}}}}
"""


def test_the_newest_kubectl_applies_explains_waits_and_shows(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST.format(value="one"))
    assert "configured" in kubectl("apply", "-f", "-", stdin=MANIFEST.format(value="two"))
    assert "serverside-applied" in kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=MANIFEST.format(value="three")
    )
    assert kubectl("diff", "--server-side", "-f", "-", stdin=MANIFEST.format(value="three")) == ""
    kubectl("wait", "--for=condition=Ready", "issuer/ca", "--timeout=150s")
    assert "NAME" in kubectl("get", "issuers,configmaps")
    assert "FIELD: dnsNames" in kubectl("explain", "certificate.spec.dnsNames")
    assert "leases" in kubectl("api-resources")
    assert "Name:         applied" in kubectl("describe", "configmap", "applied")
    kubectl("label", "configmap", "applied", "a=b")
    kubectl("patch", "configmap", "applied", "-p", '{"data":{"more":"x"}}')
    assert kubectl("get", "configmap", "applied", "-o", "jsonpath={.data.more}") == "x"
    kubectl("delete", "configmap", "applied")
