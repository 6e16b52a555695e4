"""ML-DSA keys by the commands: `certwright serve --feature-gates PostQuantum=true`, apply, wait, inspect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.calls import EXAMPLES, PATIENT, Cli, Process

SERVE = ("serve", "--listen", "127.0.0.1:0", "--data-dir", "data")
MANIFEST = str(EXAMPLES / "post-quantum" / "ca.yaml")


def test_without_the_feature_gate_the_error_names_it(cli: Cli, namespace: str) -> None:
    manifest = (
        "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: web}\n"
        "spec: {secretName: web, dnsNames: [a.example], issuerRef: {name: ca}, "
        "privateKey: {algorithm: ML-DSA}}\n"
    )
    refused = cli("apply", "-f", "-", "-n", namespace, stdin=manifest)
    assert refused.status == 1
    (line,) = refused.err.splitlines()
    assert line.endswith(
        "spec.privateKey.algorithm: Forbidden: ML-DSA is an alpha feature; have certwright started with "
        "--feature-gates PostQuantum=true, or write RSA, ECDSA or Ed25519"
    )


def test_with_the_feature_gate_the_example_is_issued(
    start: Callable[..., Process], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(*SERVE, "--feature-gates", "PostQuantum=true")
    assert server.line().startswith("certwright is ready at"), server.rest().err
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "data" / "kubeconfig"))
    assert cli("apply", "-f", MANIFEST).status == 0
    waited = cli("wait", "certificate", "--all", "--for=condition=Ready", *PATIENT)
    assert waited.status == 0, waited.err
    shown = cli("inspect", "secret", "web-tls").out
    assert "ML-DSA-65, belongs to the certificate" in shown
    assert "digital signature, server auth" in shown
    assert "ECDSA 256, belongs to the certificate" in cli("inspect", "secret", "classic-tls").out
    server.end()
