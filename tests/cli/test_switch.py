"""`certwright check switch`: what works, changes or stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certwright.cli.commands import controllers
from certwright.cli.switch import KNOWN_GATES, Cluster, Finding, findings
from certwright.controllers import settings
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
    outcome = cli("check", "switch")
    assert outcome.status == 0
    assert f"change  Issuer {namespace}/le: spec.acme.solvers[0]: HTTP-01 is answered by" in outcome.out
    assert cli("delete", "issuer", "le", "-n", namespace).status == 0
    assert f"{namespace}/le" not in cli("check", "switch").out


def issuer(spec: Json, name: str = "le") -> Issuer:
    return codec.from_dict(ISSUERS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def cluster_issuer(spec: Json) -> ClusterIssuer:
    return codec.from_dict(CLUSTER_ISSUERS, {"metadata": {"name": "le"}, "spec": spec})


def acme(server: str, solver: Json) -> Json:
    """The spec of an ACME issuer."""
    return {"acme": {"server": server, "privateKeySecretRef": {"name": "key"}, "solvers": [solver]}}


def only(cluster: Cluster) -> Finding:
    """The one statement about a cluster."""
    (finding,) = findings(cluster)
    return finding


def test_issuers_that_need_a_flag_stop() -> None:
    finding = only(
        Cluster(issuers=[issuer({"vault": {"server": "http://vault", "path": "pki", "auth": {}}})])
    )
    assert (finding.verdict, finding.about) == ("stops", "Issuer default/le")
    assert "spec.vault.server" in finding.text
    assert finding.text.count("--allow-http-servers") == 1


def test_programs_and_directories_of_solvers_stop() -> None:
    command = {"exec": {"command": ["dns", "example.org"], "type": "DNS-01"}}
    webroot = {"http01": {"webroot": {"path": "/var/www"}}}
    for solver, flag in ((command, "--exec-solver"), (webroot, "--webroot")):
        finding = only(Cluster(issuers=[issuer(acme("https://ca.example/directory", solver))]))
        assert finding.verdict == "stops"
        assert flag in finding.text


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

    reported = findings(
        Cluster(
            certificates=[
                certificate("a", "True"),
                certificate("b", "False"),
                certificate("c", "True", "example.com"),
            ]
        )
    )
    assert [(finding.verdict, finding.about) for finding in reported] == [
        ("changes", "1 Certificates (default/b)"),
        ("works", "2 Certificates"),
        ("works", "1 Certificates"),
    ]
    assert "X.example.com" in reported[2].text


def deployment(component: str, *args: str, replicas: int = 1, image: str = "") -> Json:
    """A Deployment of cert-manager's chart 1.21."""
    container = {"image": image or f"quay.io/jetstack/cert-manager-{component}:v1.21.2", "args": list(args)}
    return {
        "metadata": {"name": component, "namespace": "cm"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }


def webhook(kind: str = "ValidatingWebhookConfiguration", name: str = "cm-cert-manager-webhook") -> Json:
    return {"kind": kind, "metadata": {"name": name}}


def test_what_runs_is_named_with_its_flags() -> None:
    args = (
        "--v=2",
        "--acme-http01-solver-image=x",
        "--concurrent-workers=50",
        "--dns01-recursive-nameservers-only",
        "--config=/var/cert-manager/config/config.yaml",
        "--feature-gates=SecretsFilteredCaching=true,OtherNames=true",
    )
    other = {
        "metadata": {"name": "web", "namespace": "default", "labels": {"app.kubernetes.io/name": "webhook"}},
        "spec": {"template": {"spec": {"containers": [{"image": "knative/webhook"}]}}},
    }
    reported = findings(Cluster(deployments=[deployment("controller", *args), other]))
    assert {finding.about for finding in reported} == {"Deployment cm/controller"}
    assert [finding.text for finding in reported] == [
        "is running: scale it to 0 before certwright is started, or upgrade the Helm release",
        "remove these feature gates, or let the chart translate them: OtherNames=true",
        "its flags go to certwright, unless they are defaults: --dns01-recursive-nameservers-only",
        "these flags are not needed here: --v=2 --acme-http01-solver-image=x --concurrent-workers=50",
        "certwright has no such flags, see the README of its chart for what replaces them: "
        "--config=/var/cert-manager/config/config.yaml",
    ]


def test_deployments_with_another_image_are_known_by_the_labels_of_their_chart() -> None:
    labels = {"helm.sh/chart": "cert-manager-v1.12.3", "app.kubernetes.io/component": "cainjector"}
    mirrored = deployment("cainjector", image="mirror.example.org/a/b:1")
    mirrored["metadata"]["labels"] = labels
    assert only(Cluster(deployments=[mirrored])).about == "Deployment cm/cainjector"
    mirrored["metadata"]["labels"] = {"app.kubernetes.io/name": "cert-manager"}
    assert only(Cluster(deployments=[mirrored])).about == "Deployment cm/cainjector"


def test_every_flag_of_cert_manager_that_is_kept_is_one_of_certwright() -> None:
    text = (Path(__file__).parents[1] / "deploy" / "data" / "cert_manager_flags.txt").read_text()
    flags = [line for line in text.splitlines() if line.startswith("--")]
    reported = findings(Cluster(deployments=[deployment("controller", *(f"{flag}=1" for flag in flags))]))
    (kept,) = (finding.text for finding in reported if finding.text.startswith("its flags go to certwright"))
    known = {flag for option in controllers.command.params for flag in option.opts}
    assert {flag.removesuffix("=1") for flag in kept.split() if flag.startswith("--")} <= known
    assert set(KNOWN_GATES) <= set(settings.FEATURE_GATES)


def test_the_webhook_is_deleted_with_its_deployment_and_stops_every_write_if_it_is_left() -> None:
    both = [webhook(), webhook("MutatingWebhookConfiguration")]
    running = findings(Cluster(webhooks=both, deployments=[deployment("webhook")]))
    assert [finding.verdict for finding in running if "WebhookConfiguration" in finding.about] == [
        "changes",
        "changes",
    ]
    for left in ([], [deployment("webhook", replicas=0)]):
        reported = findings(Cluster(webhooks=both, deployments=left))
        assert [finding.verdict for finding in reported] == ["stops", "stops"]
        assert all("delete it" in finding.text for finding in reported)


def annotated(name: str, **annotations: str) -> Json:
    """An Ingress or Gateway."""
    return {"metadata": {"name": name, "namespace": "default", "annotations": annotations}}


def owned(kind: str, name: str) -> Json:
    """A Certificate that a shim has made."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "ownerReferences": [{"kind": kind, "name": name, "controller": True}],
        },
        "spec": {"issuerRef": {"name": "ca"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def test_ingresses_and_what_could_not_be_read_are_named() -> None:
    by_issuer = annotated("one", **{"cert-manager.io/issuer": "ca"})
    automatic = annotated("two", **{"kubernetes.io/tls-acme": "true"})
    plain: Json = {"metadata": {"name": "three", "namespace": "default"}}
    cluster = Cluster(
        ingresses=[by_issuer, automatic, plain],
        certificates=[owned("Ingress", "one"), owned("Ingress", "two")],
        missing={"gateways": "forbidden"},
    )
    assert [(finding.verdict, finding.about) for finding in findings(cluster)] == [
        ("unread", "gateways"),
        ("changes", "1 Ingresses"),
        ("works", "2 Certificates"),
        ("works", "2 Ingresses"),
    ]


def test_gateways_that_cert_manager_passed_over_get_certificates() -> None:
    gateway = annotated("gate", **{"cert-manager.io/cluster-issuer": "ca"})
    finding = only(Cluster(gateways=[gateway]))
    assert (finding.verdict, finding.about) == ("changes", "1 Gateways (default/gate)")
    kept = findings(Cluster(gateways=[gateway], certificates=[owned("Gateway", "gate")]))
    assert {finding.verdict for finding in kept} == {"works"}
