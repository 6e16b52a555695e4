"""A Helm release of cert-manager's own chart is upgraded to ours in place, and rolled back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.daemon import Daemon, running_daemon
from deploy.rights import CHART, Json
from support.go import folder_of
from support.programs import tool
from support.real import require

# The last release whose Go module holds the chart.
MODULE = "github.com/cert-manager/cert-manager@v1.11.5"
RELEASE = "cm"
NAMESPACE = "cert-manager"
VALUES = """
installCRDs: true
global: {leaderElection: {namespace: cert-manager}}
startupapicheck: {enabled: false}
webhook: {replicaCount: 2, timeoutSeconds: 20}
extraArgs: [--enable-certificate-owner-ref=true, --default-issuer-name=ca]
"""
ISSUER = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self, namespace: default}
spec: {selfSigned: {}}
"""


class Cluster:
    """A server, with Helm and kubectl. `values` is what `helm get values` has printed."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self._daemon = daemon
        self.values = folder / "values.yaml"

    def helm(self, *words: str) -> str:
        """Run Helm; the result is what it has printed."""
        return self._run(str(tool("helm", made_by="helm")), *words, "--namespace", NAMESPACE)

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl; the result is what it has printed."""
        return self._run("kubectl", *words, stdin=stdin)

    def names(self, kind: str) -> set[str]:
        """The names of all objects of a kind."""
        return set(self.kubectl("get", kind, "--all-namespaces", "--output=name").split())

    def deployment(self) -> Json:
        loaded: Json = json.loads(
            self.kubectl("get", "deployment", f"{RELEASE}-cert-manager", "-n", NAMESPACE, "-o", "json")
        )
        return loaded

    def _run(self, *words: str, stdin: str = "") -> str:
        done = self._daemon.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server with a release of cert-manager, which owns the definitions too."""
    require("kubectl")
    folder = tmp_path_factory.mktemp("upgrade")
    with running_daemon(folder, "--controllers", "") as daemon:
        new_cluster = Cluster(daemon, folder)
        new_cluster.kubectl("create", "namespace", NAMESPACE)
        new_cluster.kubectl("apply", "-f", "-", stdin=ISSUER)
        # The server's own definitions; in a cluster they are the chart's from the beginning.
        owner = (f"meta.helm.sh/release-name={RELEASE}", f"meta.helm.sh/release-namespace={NAMESPACE}")
        new_cluster.kubectl("annotate", "customresourcedefinitions", "--all", *owner)
        new_cluster.kubectl(
            "label", "customresourcedefinitions", "--all", "app.kubernetes.io/managed-by=Helm"
        )
        (folder / "first.yaml").write_text(VALUES)
        new_cluster.helm(
            "install", RELEASE, str(cert_managers_chart(folder)), "--values", str(folder / "first.yaml")
        )
        new_cluster.values.write_text(new_cluster.helm("get", "values", RELEASE, "--output", "yaml"))
        yield new_cluster


def cert_managers_chart(folder: Path) -> Path:
    """The chart as cert-manager's release tool puts it together."""
    source = folder_of(MODULE) / "deploy"
    chart = folder / "chart"
    shutil.copytree(source / "charts" / "cert-manager", chart, copy_function=shutil.copyfile)
    chart.joinpath("templates").chmod(0o755)
    chart.chmod(0o755)
    for path in (source / "crds").glob("*.yaml"):
        shutil.copyfile(path, chart / "templates" / path.name)
    text = (chart / "Chart.template.yaml").read_text().replace("v0.1.0", "v1.11.5")
    (chart / "Chart.yaml").write_text(text)
    return chart


def test_a_release_of_cert_manager_is_upgraded_in_place_and_rolled_back(cluster: Cluster) -> None:
    webhooks = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    before = {kind: cluster.names(kind) for kind in ("deployments", webhooks, "clusterroles")}
    assert (len(before["deployments"]), len(before[webhooks])) == (3, 2)
    image = "imageRegistry=registry.example.org,imageNamespace=mirror"
    own = ("--values", str(cluster.values), "--set", f"nameOverride=cert-manager,{image}")

    cluster.helm("upgrade", RELEASE, str(CHART), *own)
    assert cluster.names("deployments") == {f"deployment.apps/{RELEASE}-cert-manager"}
    assert cluster.names(webhooks) == set()
    (container,) = cluster.deployment()["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example.org/mirror/certwright:")
    assert {"--enable-certificate-owner-ref=true", "--default-issuer-name=ca"} <= set(container["args"])
    # No webhook is in the way of writes any more.
    cluster.kubectl("annotate", "issuer", "self", "upgraded=yes")

    cluster.helm("rollback", RELEASE)
    assert {kind: cluster.names(kind) for kind in before} == before
    (container,) = cluster.deployment()["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "quay.io/jetstack/cert-manager-controller:v1.11.5"

    cluster.helm("upgrade", RELEASE, str(CHART), *own)
    cluster.helm("uninstall", RELEASE)
    assert cluster.names("deployments") == set()
    assert cluster.names("issuers") == {"issuer.cert-manager.io/self"}, "the definitions are kept"
