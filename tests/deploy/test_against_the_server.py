"""Our own API server takes every manifest, and the rights in them are enough."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from certwright.kube.util.http_messages import Identity
from conformance.daemon import Daemon, running_daemon
from deploy.rights import DEPLOY, Json, documents, render
from support.real import require

# Kinds of programs that our server has nothing to do with: it runs no pods.
ELSEWHERE = {"NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor", "PodMonitor"}
ACCOUNT = Identity(
    "system:serviceaccount:certwright:certwright",
    groups=("system:serviceaccounts", "system:serviceaccounts:certwright", "system:authenticated"),
)
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    require("kubectl")
    with running_daemon(tmp_path_factory.mktemp("deploy"), "--controllers", "") as server:
        assert server.run("kubectl", "create", "namespace", "certwright").returncode == 0
        yield server


def dry_run(daemon: Daemon, objects: list[Json]) -> subprocess.CompletedProcess[str]:
    text = yaml.safe_dump_all(objects)
    return daemon.run(
        "kubectl", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=text
    )


@pytest.mark.parametrize(
    "name", ["crds.yaml", "kubernetes.yaml", "kubernetes-one-namespace.yaml", "admission-policies.yaml"]
)
def test_the_server_takes_the_plain_manifests(daemon: Daemon, name: str) -> None:
    objects = [
        document for document in documents((DEPLOY / name).read_text()) if document["kind"] not in ELSEWHERE
    ]
    # The definitions are there already, as the server's own: applied with the fields of somebody else.
    done = dry_run(daemon, objects)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


@pytest.mark.parametrize(
    "words",
    [(), ("--set", "watchNamespace=certwright"), ("--set", "shards=4,replicaCount=4,crds.enabled=true")],
    ids=["as it is", "one namespace", "shards and definitions"],
)
def test_the_server_takes_what_the_chart_renders(daemon: Daemon, words: tuple[str, ...]) -> None:
    objects = [document for document in documents(render(*words)) if document["kind"] not in ELSEWHERE]
    done = dry_run(daemon, objects)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


def test_the_server_takes_the_chart_with_values_of_clusters(daemon: Daemon) -> None:
    folder = Path(__file__).parent / "values"
    words = [("--values", str(path), "--set", "crds.enabled=false") for path in sorted(folder.glob("*.yaml"))]
    texts = [
        render(*each, *(("--set", "installCRDs=false") if "of-old" in each[1] else ())) for each in words
    ]
    objects = [
        document for text in texts for document in documents(text) if document["kind"] not in ELSEWHERE
    ]
    assert len(texts) >= 6
    for namespace in ("team", "team-certificates", "cert-manager"):
        assert daemon.run("kubectl", "create", "namespace", namespace).returncode == 0
    done = dry_run(daemon, objects)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects)


def test_a_replica_of_one_namespace_signs_no_kubernetes_requests() -> None:
    text = render("--set", "certificateSigningRequests.enabled=true,watchNamespace=certwright")
    assert "certificatesigningrequests" not in text


def test_no_object_is_named_twice() -> None:
    for path in (DEPLOY / "kubernetes.yaml", DEPLOY / "kubernetes-one-namespace.yaml"):
        names = [
            (document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
            for document in documents(Path(path).read_text())
        ]
        assert len(names) == len(set(names))
