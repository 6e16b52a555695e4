"""examples/external-issuer, by its own commands: a server, the sample issuer beside it, a Certificate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from certwright.pki.keys import encode_private_key
from cli.calls import EXAMPLES, PATIENT, Cli, Process
from issuers.authority import new_root
from support.programs import spawn, stop

FOLDER = EXAMPLES / "external-issuer"


def test_the_sample_issuer_signs(
    start: Callable[..., Process], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start("serve", "--listen", "127.0.0.1:0", "--data-dir", "data")
    assert server.line().startswith("certwright is ready at"), server.rest().err
    kubeconfig = str(tmp_path / "data" / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    root = new_root("Sample CA")
    (tmp_path / "ca.crt").write_bytes(root.pem)
    (tmp_path / "ca.key").write_bytes(encode_private_key(root.key))
    assert cli("apply", "-f", str(FOLDER / "install.yaml")).status == 0
    command = [sys.executable, str(FOLDER / "issuer.py"), str(tmp_path / "ca.crt"), str(tmp_path / "ca.key")]
    log = tmp_path / "issuer.log"
    with log.open("wb") as out:
        process = spawn(command, out, env={"KUBECONFIG": kubeconfig})
        try:
            assert cli("apply", "-f", str(FOLDER / "certificate.yaml")).status == 0
            waited = cli("wait", "certificate", "by-sample", "--for=condition=Ready", *PATIENT)
            assert waited.status == 0, waited.err + log.read_text()
        finally:
            stop(process)
    assert "CN=Sample CA" in cli("inspect", "secret", "by-sample-tls").out
