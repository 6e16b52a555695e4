"""`certwright check switch`: what works, changes or stops."""

from __future__ import annotations

from typing import Any

from certwright.cli.switch_findings import Cluster, Finding, findings
from certwright.kube.api import codec
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS
from cli.calls import Cli

Json = dict[str, Any]
ISSUER = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: le, namespace: NAMESPACE}
spec:
  acme:
    server: https://ca.example/directory
    privateKeySecretRef: {name: key}
    solvers: [{http01: {ingress: {ingressClassName: nginx}}}]
"""


def test_a_server_is_checked(cli: Cli, namespace: str) -> None:
    assert cli("check", "api", "-n", namespace).out == "the API is ready\n"
    missing = cli("check", "api", "-n", "nowhere")
    assert missing.status == 1
    assert "has no namespace nowhere" in missing.err


def test_a_cluster_is_read_before_the_switch(cli: Cli, namespace: str) -> None:
    assert cli("apply", "-f", "-", stdin=ISSUER.replace("NAMESPACE", namespace)).status == 0
    found = cli("check", "switch")
    assert found.status == 0
    assert f"change  Issuer {namespace}/le: spec.acme.solvers[0]: HTTP-01 is answered by" in found.out
    assert cli("delete", "issuer", "le", "-n", namespace).status == 0
    assert f"{namespace}/le" not in cli("check", "switch").out


def issuer(spec: Json, name: str = "le") -> Issuer:
    """An Issuer."""
    return codec.from_dict(ISSUERS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def cluster_issuer(spec: Json) -> ClusterIssuer:
    """A ClusterIssuer."""
    return codec.from_dict(CLUSTER_ISSUERS, {"metadata": {"name": "le"}, "spec": spec})


def acme(server: str, solver: Json) -> Json:
    """The spec of an ACME issuer."""
    return {"acme": {"server": server, "privateKeySecretRef": {"name": "key"}, "solvers": [solver]}}


def only(cluster: Cluster) -> Finding:
    """The one statement about a cluster."""
    (found,) = findings(cluster)
    return found


def test_issuers_that_need_a_flag_stop() -> None:
    found = only(Cluster(issuers=[issuer({"vault": {"server": "http://vault", "path": "pki", "auth": {}}})]))
    assert (found.verdict, found.about) == ("stops", "Issuer default/le")
    assert "spec.vault.server" in found.text
    assert found.text.endswith("start certwright with --allow-http-servers")


def test_http01_behind_an_ingress_changes_and_dns01_does_not() -> None:
    http01 = {"http01": {"ingress": {"ingressClassName": "nginx"}}}
    dns01 = {"dns01": {"cloudflare": {"apiTokenSecretRef": {"name": "a", "key": "b"}}}}
    spec = acme("https://ca.example/directory", http01)
    assert only(Cluster(cluster_issuers=[cluster_issuer(spec)])).verdict == "changes"
    spec = acme("https://ca.example/directory", dns01)
    assert only(Cluster(issuers=[issuer(spec)])) == Finding("works", "1 Issuers", "sign as before")


def test_certificates_are_counted_by_what_happens_to_them() -> None:
    def certificate(name: str, status: str, group: str = "") -> Json:
        return {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"issuerRef": {"name": "x", "group": group, "kind": "X"}},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }

    found = findings(
        Cluster(
            certificates=[
                certificate("a", "True"),
                certificate("b", "False"),
                certificate("c", "True", "example.com"),
            ]
        )
    )
    assert [(one.verdict, one.about) for one in found] == [
        ("changes", "1 Certificates (default/b)"),
        ("works", "2 Certificates"),
        ("works", "1 Certificates"),
    ]
    assert "X.example.com" in found[2].text


def test_what_runs_is_named_with_its_flags() -> None:
    args = ["--v=2", "--acme-http01-solver-image=x", "--dns01-recursive-nameservers-only"]
    deployment = {
        "metadata": {"name": "cm", "namespace": "cm", "labels": {"app.kubernetes.io/name": "cert-manager"}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"args": args}]}}},
    }
    other = {"metadata": {"name": "web", "namespace": "default"}, "spec": {}}
    texts = [one.text for one in findings(Cluster(deployments=[deployment, other]))]
    assert texts == [
        "is running: scale it to 0 before certwright is started",
        "its flags go to certwright, unless they are defaults: --dns01-recursive-nameservers-only",
        "these flags have no meaning here, since there are no solver pods: --acme-http01-solver-image=x",
    ]


def test_the_webhook_that_is_left_stops_every_write() -> None:
    webhook = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "cert-manager-webhook"}}
    found = only(Cluster(webhooks=[webhook]))
    assert found.verdict == "stops"
    assert "delete it" in found.text


def test_ingresses_and_what_could_not_be_read_are_named() -> None:
    by_issuer = {"metadata": {"annotations": {"cert-manager.io/issuer": "ca"}}}
    automatic = {"metadata": {"annotations": {"kubernetes.io/tls-acme": "true"}}}
    plain: Json = {"metadata": {}}
    cluster = Cluster(ingresses=[by_issuer, automatic, plain], missing={"gateways": "forbidden"})
    assert [(one.verdict, one.about) for one in findings(cluster)] == [
        ("changes", "gateways"),
        ("changes", "1 Ingresses"),
        ("works", "2 Ingresses"),
    ]
