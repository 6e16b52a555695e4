"""examples/external-issuer, by its own commands: a server, the sample issuer beside it, a Certificate."""

from __future__ import annotations

import sys
from pathlib import Path

from certwright.pki.keys import encode_private_key
from cli.calls import EXAMPLES, PATIENT, Cli
from issuers.authority import new_root
from support.programs import spawn, stop

FOLDER = EXAMPLES / "external-issuer"


def test_the_sample_issuer_signs(cli: Cli, daemon: Path, tmp_path: Path) -> None:
    root = new_root("Sample CA")
    (tmp_path / "ca.crt").write_bytes(root.pem)
    (tmp_path / "ca.key").write_bytes(encode_private_key(root.key))
    assert cli("apply", "-f", str(FOLDER / "install.yaml")).status == 0
    command = [sys.executable, str(FOLDER / "issuer.py"), str(tmp_path / "ca.crt"), str(tmp_path / "ca.key")]
    log = tmp_path / "issuer.log"
    with log.open("wb") as out:
        process = spawn(command, out, env={"KUBECONFIG": str(daemon)})
        try:
            assert cli("apply", "-f", str(FOLDER / "certificate.yaml")).status == 0
            waited = cli("wait", "certificate", "by-sample", "--for=condition=Ready", *PATIENT)
            assert waited.status == 0, waited.err + log.read_text()
        finally:
            stop(process)
    assert "CN=Sample CA" in cli("inspect", "secret", "by-sample-tls").out
