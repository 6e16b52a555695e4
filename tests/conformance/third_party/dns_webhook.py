"""A DNS-01 webhook on cert-manager's framework, with the rights and the APIService of its sample chart."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from certwright.kube.client.kubeconfig import load
from conformance.daemon import running_daemon
from conformance.third_party.chart import (
    NAMESPACE,
    Check,
    Cluster,
    decoded,
    kubeconfig_of,
    wait_until,
)
from support.programs import free_port, running, tool

_NAME: Final = "dns-webhook"
_GROUP: Final = "acme.example.org"
_PATH: Final = f"/apis/{_GROUP}/v1alpha1/records"
_RBAC: Final = "rbac.authorization.k8s.io"
_CONTROLLERS: Final = f"system:serviceaccount:{NAMESPACE}:cert-manager"
_PAYLOAD: Final = json.dumps(
    {
        "apiVersion": "webhook.acme.cert-manager.io/v1alpha1",
        "kind": "ChallengePayload",
        "request": {"uid": "1", "action": "Present", "type": "dns-01", "dnsName": "example.org", "key": "k"},
    }
)
Json = dict[str, Any]


def run(folder: Path) -> list[Check]:
    """Install it, and have a challenge presented through the API server."""
    program, port = tool(_NAME, made_by="third-party"), free_port()
    with running_daemon(folder) as daemon:
        cluster = Cluster(daemon)
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        cluster.apply(*_chart(port))
        wait_until(lambda: bool(cluster.get("secret", _NAME, NAMESPACE).get("data")))
        pair = cluster.get("secret", _NAME, NAMESPACE)
        for name in ("tls.crt", "tls.key"):
            (folder / name).write_bytes(decoded(pair, name))
        kubeconfig = kubeconfig_of(cluster, _NAME)
        command = [
            str(program),
            *(f"--{prefix}kubeconfig={kubeconfig}" for prefix in ("", "authentication-", "authorization-")),
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--tls-cert-file={folder / 'tls.crt'}",
            f"--tls-private-key-file={folder / 'tls.key'}",
        ]
        with running(command, folder / f"{_NAME}.log", port):
            return _checks(cluster, port)


def _checks(cluster: Cluster, port: int) -> list[Check]:
    access = load(cluster.daemon.kubeconfig)
    api = {"authorization": f"Bearer {access.token}"}
    trusting = ssl.create_default_context(cadata=access.ca_pem.decode())
    answer = ""

    def is_presented() -> bool:
        nonlocal answer
        answer = _post(access.server, api | {"impersonate-user": _CONTROLLERS}, trusting)
        return '"success":true' in answer

    presented = wait_until(is_presented)
    refused = _post(access.server, api | {"impersonate-user": "jane"}, trusting)
    # What the webhook itself answers to the headers of the proxy without its certificate.
    forged = {"x-remote-user": _CONTROLLERS, "x-remote-group": "system:masters"}
    untrusting = ssl.create_default_context()
    untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE
    anonymous = _post(f"https://127.0.0.1:{port}", forged, untrusting)
    return [
        Check(f"a challenge of certwright's ServiceAccount is presented: {answer[:200]}", presented),
        Check(f"one of another user is refused: {refused[:200]}", 'User \\"jane\\" cannot create' in refused),
        Check(
            f"the proxy's headers need its certificate: {anonymous[:200]}", "system:anonymous" in anonymous
        ),
    ]


def _post(server: str, headers: Mapping[str, str], context: ssl.SSLContext) -> str:
    fields = {**headers, "content-type": "application/json"}
    request = urllib.request.Request(server + _PATH, _PAYLOAD.encode(), fields)  # noqa: S310 - https
    try:
        with urllib.request.urlopen(request, context=context) as response:  # noqa: S310 - https
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def _chart(port: int) -> list[Json]:
    """Its objects, with a Service that leads out of the cluster."""
    mine = {"name": _NAME, "namespace": NAMESPACE}
    account = {"kind": "ServiceAccount", **mine}
    controllers = {"kind": "ServiceAccount", "name": "cert-manager", "namespace": NAMESPACE}
    solving = {"apiGroups": [_GROUP], "resources": ["*"], "verbs": ["create"]}
    trusting = {"name": f"{_NAME}:authentication", "namespace": "kube-system"}
    bindings = [
        _binding("RoleBinding", trusting, "Role", "extension-apiserver-authentication-reader", account),
        _binding(
            "ClusterRoleBinding", {"name": f"{_NAME}:auth"}, "ClusterRole", "system:auth-delegator", account
        ),
        _binding(
            "ClusterRoleBinding", {"name": f"{_NAME}:solver"}, "ClusterRole", f"{_NAME}:solver", controllers
        ),
    ]
    leaf = {
        "secretName": _NAME,
        "dnsNames": [f"{_NAME}.{NAMESPACE}.svc"],
        "issuerRef": {"name": _NAME},
        "isCA": True,
    }
    api_service = {
        "group": _GROUP,
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        "version": "v1alpha1",
        "service": {**mine, "port": port},
    }
    inject = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{_NAME}"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": mine},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"{_NAME}:solver"},
            "rules": [solving],
        },
        *bindings,
        {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": mine, "spec": {"selfSigned": {}}},
        {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": mine, "spec": leaf},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": mine,
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1alpha1.{_GROUP}", "annotations": inject},
            "spec": api_service,
        },
    ]


def _binding(kind: str, metadata: Json, role_kind: str, role: str, subject: Json) -> Json:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [subject],
    }
