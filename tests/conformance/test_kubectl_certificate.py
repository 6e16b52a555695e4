"""`kubectl certificate approve` and `deny` with our signers, against the real program."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from certwright.pki.certificates import read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from conformance.daemon import Daemon, running_daemon
from support.real import require
from support.waiting import until_so

SIGNERS = "*,certificatesigningrequests-issuer-ca,certificatesigningrequests-issuer-selfsigned"
CA = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: root, namespace: default}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: ca, namespace: default}
spec:
  isCA: true
  commonName: The CA
  secretName: ca
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: root}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: ca, namespace: default}
spec: {ca: {secretName: ca}}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One server with our signers switched on, and a CA."""
    require("kubectl")
    with running_daemon(tmp_path_factory.mktemp("signers"), "--controllers", SIGNERS) as process:
        kubectl(process, "apply", "-f", "-", stdin=CA)
        kubectl(process, "wait", "--for=condition=Ready", "issuer/ca", "--timeout=250s")
        yield process


def kubectl(daemon: Daemon, *words: str, stdin: str = "") -> str:
    """What kubectl prints, which must succeed."""
    done = daemon.run("kubectl", *words, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_request(daemon: Daemon, name: str) -> None:
    """A CertificateSigningRequest for our CA."""
    usages = ["digital signature", "key encipherment", "client auth"]
    csr = build_csr(CsrPlan(common_name=name, usages=tuple(usages)), generate(KeyPlan.of("ECDSA")))
    spec: dict[str, Any] = {
        "request": base64.b64encode(csr).decode(),
        "signerName": "issuers.cert-manager.io/default.ca",
        "expirationSeconds": 3600,
        "usages": usages,
    }
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
    kubectl(daemon, "create", "-f", "-", stdin=json.dumps(body))


def test_what_kubectl_approves_is_signed(daemon: Daemon) -> None:
    make_request(daemon, "jane")
    assert "Pending" in kubectl(daemon, "get", "csr", "jane")
    assert "approved" in kubectl(daemon, "certificate", "approve", "jane")
    kubectl(daemon, "wait", "--for=jsonpath={.status.certificate}", "csr/jane", "--timeout=250s")
    assert "Approved,Issued" in kubectl(daemon, "get", "csr", "jane")
    text = kubectl(daemon, "get", "csr", "jane", "-o", "jsonpath={.status.certificate}")
    leaf = read_certificate(base64.b64decode(text))
    assert (leaf.common_name, leaf.issuer_text) == ("jane", "CN=The CA")
    assert (leaf.not_after - leaf.not_before).total_seconds() == 3600
    until_so(lambda: "CertificateIssued" in kubectl(daemon, "describe", "csr", "jane"))


def test_what_kubectl_denies_is_not_signed(daemon: Daemon) -> None:
    make_request(daemon, "joe")
    kubectl(daemon, "certificate", "deny", "joe")
    assert "Denied" in kubectl(daemon, "get", "csr", "joe")
    assert kubectl(daemon, "get", "csr", "joe", "-o", "jsonpath={.status.certificate}") == ""
