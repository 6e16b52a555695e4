"""aws-privateca-issuer, an external issuer, with the rights of its chart: it signs for our controllers by AWS
Private CA, in whose place `support/acm_pca.py` answers."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from certwright.pki.certificates import read_chain
from conformance.daemon import running_daemon
from conformance.third_party.chart import (
    Chart,
    Check,
    Cluster,
    decoded,
    install,
    kubeconfig_of,
    running,
    wait_until,
)
from issuers.authority import Authority
from support.acm_pca import ARN, PrivateCa, private_ca
from support.programs import free_port, tool

CHART: Final = Chart(
    module="github.com/cert-manager/aws-privateca-issuer@v1.12.0",
    folder="charts/aws-pca-issuer",
    name="aws-privateca-issuer",
)
_GROUP: Final = "awspca.cert-manager.io"


def run(folder: Path) -> list[Check]:
    """Install it, and have Certificates issued."""
    program = tool("aws-privateca-issuer", made_by="third-party")
    probe_port = free_port()
    authority = Authority.fresh("Private CA", now=datetime.now(UTC))
    with running_daemon(folder) as daemon, private_ca(authority) as ca:
        cluster = Cluster(daemon)
        install(cluster, CHART, webhook_port=0)
        command = [
            str(program),
            f"--kubeconfig={kubeconfig_of(cluster, CHART.name)}",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address=127.0.0.1:{probe_port}",
        ]
        environment = {"AWS_ENDPOINT_URL": ca.url, "AWS_EC2_METADATA_DISABLED": "true"}
        with running(command, folder / "issuer.log", port=probe_port, env=environment):
            return _checks(cluster, ca)


def _checks(cluster: Cluster, ca: PrivateCa) -> list[Check]:
    cluster.apply(_certificate("early"), _credentials())
    waits = wait_until(lambda: "issuer could not be found" in _issuing(cluster, "early"))
    cluster.apply(_issuer())
    ready = wait_until(lambda: _status(cluster, f"awspcaissuer.{_GROUP}", "aws", "Ready") == "True")
    early = wait_until(lambda: _status(cluster, "certificate", "early", "Ready") == "True")
    secret = cluster.get("secret", "early")
    if not early:
        return [Check(f"the Certificate is issued: {_issuing(cluster, 'early')}", False)]
    (leaf, *_), (root, *_) = (read_chain(decoded(secret, name)) for name in ("tls.crt", "ca.crt"))
    ca.refusal = "the CA is disabled"
    cluster.apply(_certificate("refused"))
    refused = wait_until(lambda: ca.refusal in _issuing(cluster, "refused"))
    shown = _issuing(cluster, "refused")
    ca.refusal = ""
    done = cluster.daemon.run(sys.executable, "-m", "certwright", "renew", "refused")
    renewed = wait_until(lambda: _status(cluster, "certificate", "refused", "Ready") == "True")
    return [
        Check("a Certificate waits for its AWSPCAIssuer, and says so", waits),
        Check("the AWSPCAIssuer is Ready", ready),
        Check(f"the Certificate is issued: {leaf.subject_text or leaf.dns_names[0]}", early),
        Check(f"by {leaf.issuer_text}, which is in ca.crt", root.der == ca.authority.facts.der),
        Check(f"a refusal of the CA is shown: {shown}", refused),
        Check("`certwright renew` succeeds when the CA works again", not done.returncode and renewed),
        Check(f"{len(ca.issued)} certificates ordered for 2 Certificates", len(ca.issued) == 2),
    ]


def _status(cluster: Cluster, kind: str, name: str, type_: str) -> str:
    return str(cluster.condition(kind, name, type_).get("status", ""))


def _issuing(cluster: Cluster, name: str) -> str:
    return str(cluster.condition("certificate", name, "Issuing").get("message", ""))


def _credentials() -> dict[str, Any]:
    meta = {"name": "aws", "namespace": "default"}
    data = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": data}


def _issuer() -> dict[str, Any]:
    spec = {"arn": ARN, "region": "eu-central-1", "secretRef": {"name": "aws", "namespace": "default"}}
    meta = {"name": "aws", "namespace": "default"}
    return {"apiVersion": f"{_GROUP}/v1beta1", "kind": "AWSPCAIssuer", "metadata": meta, "spec": spec}


def _certificate(name: str) -> dict[str, Any]:
    spec = {
        "secretName": name,
        "dnsNames": [f"{name}.example.com"],
        "issuerRef": {"group": _GROUP, "kind": "AWSPCAIssuer", "name": "aws"},
        "privateKey": {"algorithm": "ECDSA"},
        "usages": ["server auth", "client auth"],
    }
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": meta, "spec": spec}
