"""trust-manager, with the rights, the webhook and the serving certificate of its chart: a CA that certwright
issues and renews is distributed to namespaces."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any, Final

from certwright.kube.client.kubeconfig import load
from certwright.pki import jks
from certwright.pki.certificates import read_chain
from conformance.daemon import running_daemon
from conformance.third_party.chart import (
    NAMESPACE,
    Chart,
    Check,
    Cluster,
    decoded,
    install,
    kubeconfig_of,
    serve_webhooks,
    wait_until,
)
from conformance.third_party.recording import recorded
from issuers.authority import new_root
from support.programs import free_port, running, tool

CHART: Final = Chart(
    module="github.com/cert-manager/trust-manager@v0.25.0",
    folder="deploy/charts/trust-manager",
    name="trust-manager",
    ca_secret="trust-manager-tls",
)
_BUNDLE: Final = "trusted"
_LABEL: Final = {"trust": "yes"}
# trust-manager's default.
_JKS_PASSWORD: Final = "changeit"


def run(folder: Path) -> list[Check]:
    """Install it, and have a CA distributed."""
    program = tool("trust-manager", made_by="third-party")
    webhook_port, probe_port = free_port(), free_port()
    with running_daemon(folder) as daemon, recorded(load(daemon.kubeconfig)) as recording:
        cluster = Cluster(daemon)
        webhooks = install(cluster, CHART, webhook_port=webhook_port)
        served = wait_until(lambda: bool(cluster.get("secret", CHART.ca_secret, NAMESPACE).get("data")))
        pair = cluster.get("secret", CHART.ca_secret, NAMESPACE)
        for name in ("tls.crt", "tls.key"):
            (folder / name).write_bytes(decoded(pair, name))
        kubeconfig = kubeconfig_of(cluster, CHART.name, server=recording.url, ca_pem=recording.ca_pem)
        command = [
            str(program),
            f"--kubeconfig={kubeconfig}",
            f"--trust-namespace={NAMESPACE}",
            # It takes the namespace of its Lease from the Pod that it runs in.
            "--leader-elect=false",
            "--metrics-port=0",
            f"--readiness-probe-port={probe_port}",
            "--webhook-host=127.0.0.1",
            f"--webhook-port={webhook_port}",
            f"--webhook-certificate-dir={folder}",
        ]
        with running(command, folder / "trust-manager.log", webhook_port):
            serve_webhooks(cluster, CHART, webhooks)
            certificate = Check("the certificate of its webhook, from its own chart, is issued", served)
            return [certificate, *_checks(cluster), recording.check(CHART.name, {})]


def _checks(cluster: Cluster) -> list[Check]:
    inline = new_root("Inline CA").pem.decode()
    refused = _refusal_of_an_invalid_bundle(cluster)
    cluster.apply(_namespace("labelled", _LABEL), _namespace("other", {}), *_ca(), _bundle(inline))
    first = wait_until(lambda: len(_names(cluster, "labelled")) == 2)
    names = _names(cluster, "labelled")
    synced = wait_until(lambda: cluster.condition("bundle", _BUNDLE, "Synced").get("status") == "True")
    store = base64.b64decode(_config_map(cluster, "labelled").get("binaryData", {}).get("ca.jks", ""))
    trusted = jks.open_store(store, password=_JKS_PASSWORD).trusted if store else ()
    cluster.apply(_namespace("later", _LABEL))
    later = wait_until(lambda: len(_names(cluster, "later")) == 2)
    elsewhere = _names(cluster, "other")
    before = _config_map(cluster, "labelled").get("data", {})
    _renew(cluster)
    followed = wait_until(lambda: _config_map(cluster, "labelled").get("data", {}) not in (before, {}))
    return [
        Check(f"its webhook refuses an invalid Bundle: {refused}", "spec.sources" in refused),
        Check(f"a labelled namespace gets the CAs: {', '.join(sorted(names))}", first),
        Check("its Bundle is Synced", synced),
        Check(f"the JKS file beside them has {len(trusted)} CAs", len(trusted) == 2),
        Check("a namespace that is created later gets them too", later),
        Check(f"a namespace without the label gets {len(elsewhere)}", not elsewhere),
        Check("after our renewal of the CA, its ConfigMap has the new one", followed),
    ]


def _refusal_of_an_invalid_bundle(cluster: Cluster) -> str:
    bundle = _bundle("")
    bundle["spec"]["sources"] = [{"secret": {"name": "ca"}}]
    return cluster.refusal(bundle)


def _renew(cluster: Cluster) -> None:
    done = cluster.daemon.run(sys.executable, "-m", "certwright", "renew", "root", "-n", NAMESPACE)
    if done.returncode:
        raise RuntimeError(done.stderr)


def _names(cluster: Cluster, namespace: str) -> set[str]:
    """The subjects of the CAs in the ConfigMap of a namespace."""
    pem = _config_map(cluster, namespace).get("data", {}).get("ca.pem", "")
    return {facts.subject_text for facts in read_chain(pem.encode())} if pem else set()


def _config_map(cluster: Cluster, namespace: str) -> dict[str, Any]:
    return cluster.get("configmap", _BUNDLE, namespace)


def _namespace(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _ca() -> list[dict[str, Any]]:
    """A self-signed CA in the namespace of trust-manager."""
    spec = {
        "isCA": True,
        "commonName": "Issued CA",
        "secretName": "root",
        "issuerRef": {"name": "self"},
        "privateKey": {"algorithm": "ECDSA"},
    }
    version = "cert-manager.io/v1"
    return [
        {
            "apiVersion": version,
            "kind": "Issuer",
            "metadata": {"name": "self", "namespace": NAMESPACE},
            "spec": {"selfSigned": {}},
        },
        {
            "apiVersion": version,
            "kind": "Certificate",
            "metadata": {"name": "root", "namespace": NAMESPACE},
            "spec": spec,
        },
    ]


def _bundle(inline: str) -> dict[str, Any]:
    """The CA of the Secret and an inline one, as PEM and JKS, for labelled namespaces."""
    target = {
        "configMap": {"key": "ca.pem"},
        "additionalFormats": {"jks": {"key": "ca.jks"}},
        "namespaceSelector": {"matchLabels": _LABEL},
    }
    sources = [{"secret": {"name": "root", "key": "tls.crt"}}, {"inLine": inline}]
    return {
        "apiVersion": "trust.cert-manager.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": _BUNDLE},
        "spec": {"sources": sources, "target": target},
    }
