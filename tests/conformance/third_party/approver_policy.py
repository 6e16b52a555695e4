"""approver-policy, with the rights and the webhook of its chart, in place of certwright's approver."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from certwright.kube.client.kubeconfig import load
from conformance.daemon import running_daemon
from conformance.third_party.chart import (
    NAMESPACE,
    Chart,
    Check,
    Cluster,
    install,
    kubeconfig_of,
    serve_webhooks,
    wait_until,
)
from conformance.third_party.recording import recorded
from support.programs import free_port, running, tool

CHART: Final = Chart(
    module="github.com/cert-manager/approver-policy@v0.28.0",
    folder="deploy/charts/approver-policy",
    name="cert-manager-approver-policy",
    ca_secret="cert-manager-approver-policy-tls",
)
_POLICY: Final = "policy.cert-manager.io/v1alpha1"
_RBAC: Final = "rbac.authorization.k8s.io"
_WITHOUT_OURS: Final = ("--controllers", "*,-certificaterequests-approver")


def run(folder: Path) -> list[Check]:
    """Install it, and have Certificates approved and denied."""
    program = tool("approver-policy", made_by="third-party")
    webhook_port, probe_port = free_port(), free_port()
    with running_daemon(folder, *_WITHOUT_OURS) as daemon, recorded(load(daemon.kubeconfig)) as recording:
        cluster = Cluster(daemon)
        webhooks = install(cluster, CHART, webhook_port=webhook_port)
        kubeconfig = kubeconfig_of(cluster, CHART.name, server=recording.url, ca_pem=recording.ca_pem)
        command = [
            str(program),
            f"--kubeconfig={kubeconfig}",
            f"--leader-election-namespace={NAMESPACE}",
            "--metrics-bind-address=0",
            f"--readiness-probe-bind-address=127.0.0.1:{probe_port}",
            "--webhook-host=127.0.0.1",
            f"--webhook-port={webhook_port}",
            f"--webhook-service-name={CHART.name}",
            f"--webhook-ca-secret-namespace={NAMESPACE}",
            f"--webhook-ca-secret-name={CHART.ca_secret}",
        ]
        with running(command, folder / "approver-policy.log", webhook_port):
            serve_webhooks(cluster, CHART, webhooks)
            return [*_checks(cluster), recording.check(CHART.name, {})]


def _checks(cluster: Cluster) -> list[Check]:
    refused = _refusal_of_an_invalid_policy(cluster)
    cluster.apply(_issuer(), _policy("example", ["*.example.com"]), *_may_use("example"))
    is_ready = wait_until(lambda: _status(cluster, "certificaterequestpolicy", "example", "Ready") == "True")
    cluster.apply(_certificate("allowed", "web.example.com"), _certificate("denied", "web.example.org"))
    issued = wait_until(lambda: _status(cluster, "certificate", "allowed", "Ready") == "True")
    denied = wait_until(lambda: _status(cluster, "certificaterequest", "denied-1", "Denied") == "True")
    request = cluster.condition("certificaterequest", "denied-1", "Denied").get("message", "")
    wait_until(lambda: bool(cluster.condition("certificate", "denied", "Issuing").get("message")))
    shown = cluster.condition("certificate", "denied", "Issuing").get("message", "")
    # Without the right to use a policy, its verdict does not count; with it, the request is judged again.
    cluster.kubectl("delete", "clusterrolebinding", "use-example")
    cluster.apply(_certificate("later", "www.example.com"))
    ignored = wait_until(lambda: _has_event(cluster, "later-1", "Unprocessed"))
    undecided = not _status(cluster, "certificaterequest", "later-1", "Approved")
    cluster.apply(*_may_use("example"))
    later = wait_until(lambda: _status(cluster, "certificate", "later", "Ready") == "True")
    return [
        Check(f"its webhook refuses an invalid policy: {refused}", "spec.allowed" in refused),
        Check("its policy is Ready", is_ready),
        Check("a Certificate with an allowed name is approved and issued", issued),
        Check(f"one with another name is denied: {request}", denied and "web.example.org" in request),
        Check(f"the Certificate shows why: {shown}", bool(request) and request in shown),
        Check("a requester without the right to use the policy is not served", ignored and undecided),
        Check("once it has the right, the same request is approved and issued", later),
    ]


def _refusal_of_an_invalid_policy(cluster: Cluster) -> str:
    policy = _policy("invalid", ["*"])
    policy["spec"]["allowed"]["dnsNames"]["validations"] = [{"rule": "not CEL"}]
    return cluster.refusal(policy)


def _has_event(cluster: Cluster, request: str, reason: str) -> bool:
    fields = f"involvedObject.name={request},reason={reason}"
    return bool(cluster.kubectl("get", "events", "-o", "name", "--field-selector", fields).strip())


def _status(cluster: Cluster, kind: str, name: str, type_: str) -> str:
    return str(cluster.condition(kind, name, type_).get("status", ""))


def _issuer() -> dict[str, Any]:
    meta = {"name": "self", "namespace": "default"}
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Issuer",
        "metadata": meta,
        "spec": {"selfSigned": {}},
    }


def _certificate(name: str, dns_name: str) -> dict[str, Any]:
    spec = {
        "secretName": name,
        "dnsNames": [dns_name],
        "issuerRef": {"name": "self"},
        "privateKey": {"algorithm": "ECDSA"},
    }
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": meta, "spec": spec}


def _policy(name: str, dns_names: list[str]) -> dict[str, Any]:
    allowed: dict[str, Any] = {
        "dnsNames": {"values": dns_names},
        "usages": ["digital signature", "key encipherment"],
    }
    spec = {"allowed": allowed, "selector": {"issuerRef": {"name": "self", "kind": "Issuer"}}}
    return {
        "apiVersion": _POLICY,
        "kind": "CertificateRequestPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def _may_use(policy: str) -> list[dict[str, Any]]:
    """The right to use a policy, for the requester of all requests: certwright's controllers."""
    rule = {
        "apiGroups": ["policy.cert-manager.io"],
        "resources": ["certificaterequestpolicies"],
        "verbs": ["use"],
        "resourceNames": [policy],
    }
    meta = {"name": f"use-{policy}"}
    subject = {"kind": "ServiceAccount", "name": "cert-manager", "namespace": "cert-manager"}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": f"use-{policy}"}
    version = f"{_RBAC}/v1"
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [subject],
        },
    ]
