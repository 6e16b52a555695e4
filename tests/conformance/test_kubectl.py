"""kubectl does against our server what it does against Kubernetes.

One server for all: each test works in a namespace of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.daemon import Daemon, controllers_beside, running_daemon
from support.real import require
from support.waiting import until_so

Json = dict[str, Any]


@pytest.fixture(scope="module", params=[running_daemon, controllers_beside], ids=["one program", "two"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One server for all commands; its controllers inside of it, or beside it."""
    require("kubectl")
    with request.param(tmp_path_factory.mktemp("kubectl")) as process:
        yield process


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Calls kubectl in one namespace."""

    daemon: Daemon
    namespace: str

    def __call__(self, *words: str, stdin: str = "", **environment: str) -> str:
        """What a command that must succeed prints."""
        done = self.try_to(*words, stdin=stdin, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_to(self, *words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """A command that may fail."""
        return self.daemon.run("kubectl", "-n", self.namespace, *words, stdin=stdin, **environment)

    def completed(self, *words: str) -> list[str]:
        """What the shell is offered after these words, of which the last is not finished."""
        given = ("kubectl", "__complete", words[0], "-n", self.namespace, *words[1:])
        return [line.partition("\t")[0] for line in self.daemon.run(*given).stdout.splitlines()]

    def json(self, *words: str) -> Json:
        """What is printed as JSON."""
        document: Json = json.loads(self(*words, "-o", "json"))
        return document


@pytest.fixture
def kubectl(daemon: Daemon, request: pytest.FixtureRequest) -> Kubectl:
    """kubectl in a namespace that belongs to the test."""
    name = request.function.__name__.removeprefix("test_").replace("_", "-")[:50].strip("-")
    client = Kubectl(daemon, name)
    client("create", "namespace", name)
    return client


ISSUER = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self}
spec: {selfSigned: {}}
"""
CERTIFICATE = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web}
spec: {secretName: web-tls, dnsNames: [web.example.com], issuerRef: {name: self}}
"""
BOTH = f"{ISSUER}---{CERTIFICATE}"


def test_apply_and_wait(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=BOTH).splitlines() == [
        "issuer.cert-manager.io/self created",
        "certificate.cert-manager.io/web created",
    ]
    waited = kubectl("wait", "--for=condition=Ready", "certificate/web", "--timeout=250s")
    assert waited == "certificate.cert-manager.io/web condition met\n"
    assert kubectl("apply", "-f", "-", stdin=CERTIFICATE) == "certificate.cert-manager.io/web unchanged\n"
    changed = CERTIFICATE.replace("web.example.com", "www.example.com")
    assert kubectl("apply", "-f", "-", stdin=changed) == "certificate.cert-manager.io/web configured\n"
    assert kubectl("get", "certificate", "web").split()[:4] == ["NAME", "READY", "SECRET", "AGE"]
    kubectl("wait", "--for=jsonpath={.status.revision}=2", "certificate/web", "--timeout=250s")


def test_apply_checks_fields(kubectl: Kubectl) -> None:
    wrong = CERTIFICATE.replace("dnsNames:", "dnsName: x, dnsNames:")
    done = kubectl.try_to("apply", "-f", "-", stdin=wrong)
    assert done.returncode == 1
    assert 'unknown field "spec.dnsName"' in done.stderr
    warned = kubectl.try_to("apply", "--validate=warn", "-f", "-", stdin=wrong)
    assert (warned.returncode, 'Warning: unknown field "spec.dnsName"' in warned.stderr) == (0, True)
    ignored = kubectl.try_to("apply", "--validate=false", "-f", "-", stdin=wrong.replace("web", "w2"))
    assert (ignored.returncode, ignored.stderr) == (0, "")


def test_apply_on_the_server(kubectl: Kubectl) -> None:
    on_server = ("apply", "--server-side", "-f", "-")
    assert kubectl(*on_server, stdin=BOTH).splitlines()[1] == (
        "certificate.cert-manager.io/web serverside-applied"
    )
    other = ("--field-manager=other",)
    taken = kubectl.try_to(*on_server, *other, stdin=CERTIFICATE.replace("web.example.com", "x.example.com"))
    assert taken.returncode == 1
    assert 'conflict with "kubectl": .spec.dnsNames' in taken.stderr
    forced = (*on_server, *other, "--force-conflicts")
    kubectl(*forced, stdin=CERTIFICATE.replace("web.example.com", "x.example.com"))
    assert kubectl.json("get", "certificate", "web")["spec"]["dnsNames"] == ["x.example.com"]
    shown = kubectl.json("get", "certificate", "web", "--show-managed-fields")
    assert {"other", "kubectl"} <= {entry["manager"] for entry in shown["metadata"]["managedFields"]}


def test_client_side_apply_moves_to_the_server(kubectl: Kubectl) -> None:
    maps = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: '1', b: '2'}\n"
    kubectl("apply", "-f", "-", stdin=maps)
    kubectl("apply", "--server-side", "-f", "-", stdin=maps.replace(", b: '2'", ""))
    assert kubectl.json("get", "configmap", "m")["data"] == {"a": "1"}


def test_diff(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=BOTH)
    # As long as the controllers are at it, what is compared changes.
    kubectl("wait", "--for=condition=Ready", "certificate/web", "--timeout=250s")
    assert kubectl.try_to("diff", "-f", "-", stdin=BOTH).returncode == 0
    changed = kubectl.try_to("diff", "-f", "-", stdin=BOTH.replace("web.example.com", "new.example.com"))
    assert (changed.returncode, changed.stderr) == (1, "")
    assert "+  - new.example.com" in changed.stdout
    on_server = kubectl.try_to("diff", "--server-side", "-f", "-", stdin=BOTH)
    assert on_server.returncode in (0, 1), on_server.stderr
    fresh = kubectl.try_to("diff", "-f", "-", stdin=CERTIFICATE.replace("name: web", "name: fresh"))
    assert (fresh.returncode, "+kind: Certificate" in fresh.stdout) == (1, True)


def test_create(kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "s", "--from-literal=key=value")
    kubectl("create", "configmap", "m", "--from-literal=a=1")
    kubectl("create", "serviceaccount", "robot")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=secrets")
    kubectl("create", "rolebinding", "reads", "--role=reader", f"--serviceaccount={kubectl.namespace}:robot")
    again = kubectl.try_to("create", "configmap", "m")
    assert again.stderr == 'error: failed to create configmap: configmaps "m" already exists\n'
    assert kubectl.json("get", "secret", "s")["data"] == {"key": "dmFsdWU="}
    assert kubectl("create", "-f", "-", stdin=ISSUER) == "issuer.cert-manager.io/self created\n"
    dry = kubectl("create", "configmap", "dry", "--dry-run=server", "-o", "name")
    assert (dry, kubectl.try_to("get", "configmap", "dry").returncode) == ("configmap/dry\n", 1)
    token = kubectl("create", "token", "robot")
    assert token.count(".") == 2


def test_who_may(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "certificates").strip() == "yes"
    who = kubectl.json("auth", "whoami")
    assert "system:masters" in who["status"]["userInfo"]["groups"]
    robot = f"--as=system:serviceaccount:{kubectl.namespace}:default"
    assert kubectl.try_to("auth", "can-i", "get", "secrets", robot).stdout.strip() == "no"
    assert "*.*" in kubectl("auth", "can-i", "--list")
    refused = kubectl.try_to("get", "secrets", robot)
    assert 'cannot list resource "secrets" in API group ""' in refused.stderr


def test_get(kubectl: Kubectl) -> None:
    for number in range(7):
        kubectl("create", "configmap", f"c{number}", f"--from-literal=n={number}")
    kubectl("label", "configmaps", "c1", "c2", "set=x")
    every = [f"configmap/c{number}" for number in range(7)]
    chunked = kubectl("get", "configmaps", "--chunk-size=2", "-o", "name").split()
    assert [name for name in chunked if "root-ca" not in name] == every
    assert kubectl("get", "configmaps", "-l", "set in (x)", "-o", "name").split() == every[1:3]
    by_field = ("--field-selector", "metadata.name!=c0,metadata.name!=kube-root-ca.crt")
    assert kubectl("get", "configmaps", *by_field, "-o", "name").split() == every[1:]
    assert kubectl("get", "configmaps", "c3", "-o", "jsonpath={.data.n}") == "3"
    assert "LABELS" in kubectl("get", "configmaps", "--show-labels")
    assert kubectl("get", "configmaps", "-A", "-o", "wide").startswith("NAMESPACE")
    assert kubectl("get", "configmaps", "c1", "--output=yaml").startswith("apiVersion: v1\n")
    columns = kubectl("get", "configmaps", "c1", "-o", "custom-columns=N:.metadata.name", "--no-headers")
    assert columns == "c1\n"
    missing = kubectl.try_to("get", "configmap", "none")
    assert missing.stderr == 'Error from server (NotFound): configmaps "none" not found\n'
    assert "No resources found" in kubectl.try_to("get", "secrets").stderr
    bad = kubectl.try_to("get", "configmaps", "-l", "a b")
    assert "unable to parse requirement: found 'b'" in bad.stderr
    assert '"kind":"ConfigMapList"' in kubectl(
        "get", "--raw", f"/api/v1/namespaces/{kubectl.namespace}/configmaps"
    )


def test_get_all(kubectl: Kubectl) -> None:
    kubectl(
        "apply",
        "-f",
        "-",
        stdin="apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}",
    )
    done = kubectl.try_to("get", "all")
    assert (done.returncode, done.stderr) == (0, "")
    assert "service/s" in done.stdout


def test_get_and_watch(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "first")
    path = str(kubectl.daemon.kubeconfig)
    words = ["kubectl", "--kubeconfig", path, "-n", kubectl.namespace, "get", "configmaps", "-w"]
    with subprocess.Popen(
        [*words, "--no-headers", "--output-watch-events"], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        try:
            seen = (tuple(line.split()[:2]) for line in watching.stdout)
            assert ("ADDED", "first") in seen
            kubectl("create", "configmap", "second")
            assert ("ADDED", "second") in seen
        finally:
            watching.kill()


def test_describe(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=BOTH)
    kubectl("wait", "--for=condition=Ready", "certificate/web", "--timeout=250s")
    text = kubectl("describe", "certificate", "web")
    assert "Kind:         Certificate" in text
    assert "Certificate is up to date" in text
    until_so(lambda: "Issuing" in kubectl("describe", "certificate", "web").partition("Events:")[2])
    assert "tls.crt:" in kubectl("describe", "secret", "web-tls")
    until_so(lambda: "Tokens:" in kubectl.try_to("describe", "serviceaccount", "default").stdout)
    assert "Status:       Active" in kubectl("describe", "namespace", kubectl.namespace)


def test_label_annotate_patch(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=BOTH)
    assert kubectl("label", "issuer", "self", "a=b") == "issuer.cert-manager.io/self labeled\n"
    assert kubectl("annotate", "issuer", "self", "note=x") == "issuer.cert-manager.io/self annotated\n"
    kubectl("label", "issuer", "self", "a-")
    kubectl("patch", "certificate", "web", "--type=merge", "-p", '{"spec":{"duration":"3h0m0s"}}')
    kubectl("patch", "certificate", "web", "--type=json", "-p", '[{"op":"remove","path":"/spec/duration"}]')
    assert "duration" not in kubectl.json("get", "certificate", "web")["spec"]
    kubectl("create", "configmap", "m", "--from-literal=a=1")
    kubectl("patch", "configmap", "m", "-p", '{"data":{"b":"2"}}')
    assert kubectl.json("get", "configmap", "m")["data"] == {"a": "1", "b": "2"}
    merged = (
        "patch",
        "certificate",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        '{"status":{"revision":5}}',
    )
    kubectl(*merged)


def test_replace_and_edit(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "configmap", "m", "--from-literal=a=1")
    obj = kubectl.json("get", "configmap", "m")
    obj["data"] = {"a": "2"}
    kubectl("replace", "-f", "-", stdin=json.dumps(obj))
    stale = kubectl.try_to("replace", "-f", "-", stdin=json.dumps({**obj, "data": {"a": "3"}}))
    assert "the object has been modified" in stale.stderr
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/a: \\"2\\"/a: \\"edited\\"/" "$1"\n')
    editor.chmod(0o755)
    assert kubectl("edit", "configmap", "m", KUBE_EDITOR=str(editor)) == "configmap/m edited\n"
    assert kubectl.json("get", "configmap", "m")["data"] == {"a": "edited"}
    del obj["metadata"]["resourceVersion"]
    kubectl("replace", "--force", "-f", "-", stdin=json.dumps(obj))
    assert kubectl.json("get", "configmap", "m")["data"] == {"a": "2"}


def test_delete(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        kubectl("create", "configmap", name)
    kubectl("label", "configmap", "b", "drop=yes")
    assert kubectl("delete", "configmap", "a") == 'configmap "a" deleted\n'
    assert kubectl("delete", "configmap", "-l", "drop=yes") == 'configmap "b" deleted\n'
    kubectl("delete", "configmap", "c", "--cascade=foreground", "--wait=true", "--timeout=250s")
    assert "configmap/c" not in kubectl("get", "configmaps", "-o", "name")
    kubectl("delete", "configmap", "none", "--ignore-not-found")
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=250s")
    assert kubectl.try_to("get", "namespace", kubectl.namespace).returncode == 1


def test_discovery(kubectl: Kubectl) -> None:
    resources = kubectl("api-resources")
    for line in ("certificates", "cert,certs", "configmaps", "secrets", "customresourcedefinitions"):
        assert line in resources
    named = kubectl("api-resources", "--api-group=cert-manager.io", "--namespaced=true", "-o", "name").split()
    assert "certificates.cert-manager.io" in named
    assert {"v1", "cert-manager.io/v1", "apiextensions.k8s.io/v1"} <= set(kubectl("api-versions").split())
    assert "Server Version: v1." in kubectl("version")
    assert "is running at" in kubectl("cluster-info")
    kubectl("apply", "-f", "-", stdin=BOTH)
    assert "certificates.cert-manager.io" in kubectl.completed("get", "cert")
    assert "web" in kubectl.completed("get", "certificates", "")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("certificate", "KIND:       Certificate"),
        ("certificate.spec.privateKey.algorithm", "ENUM:\n    RSA\n    ECDSA\n    Ed25519\n    ML-DSA\n"),
        ("secret.stringData", "<map[string]string>"),
        ("configmap.metadata.ownerReferences", "blockOwnerDeletion"),
    ],
)
def test_explain(daemon: Daemon, path: str, expected: str) -> None:
    done = daemon.run("kubectl", "explain", path)
    assert expected in done.stdout, done.stdout + done.stderr
    everything = daemon.run("kubectl", "explain", path, "--recursive")
    assert everything.returncode == 0, everything.stderr


def test_events(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=BOTH)
    kubectl("wait", "--for=condition=Ready", "certificate/web", "--timeout=250s")
    until_so(lambda: "Issuing" in kubectl("events"))
    assert "Issuing" in kubectl("events", "--for", "certificate/web")
    assert "Issuing" in kubectl("get", "events", "--field-selector", "involvedObject.name=web,reason=Issuing")
    assert "Normal" in kubectl("get", "events", "--sort-by=.lastTimestamp")


CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.scaled.dev}
spec:
  group: scaled.dev
  scope: Namespaced
  names: {plural: pools, singular: pool, kind: Pool, shortNames: [po2]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}}}
"""


def test_scale(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CRD)
    kubectl("wait", "--for=condition=Established", "crd/pools.scaled.dev", "--timeout=250s")
    kubectl(
        "apply",
        "-f",
        "-",
        stdin="apiVersion: scaled.dev/v1\nkind: Pool\nmetadata: {name: p}\nspec: {replicas: 1}",
    )
    assert kubectl("scale", "pool/p", "--replicas=3") == "pool.scaled.dev/p scaled\n"
    assert kubectl.json("get", "po2", "p")["spec"]["replicas"] == 3
    late = kubectl.try_to("scale", "pool/p", "--current-replicas=1", "--replicas=5")
    assert "Expected replicas to be 1, was 3" in late.stderr
