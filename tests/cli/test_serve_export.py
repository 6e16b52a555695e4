"""`serve --export --on-change`: real processes, real files."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
from pathlib import Path

from cli.calls import EXAMPLES, PATIENT, Start, serve
from support.pairs import server_pair
from support.waiting import until_so


def test_serve_exports_runs_the_command_once_for_each_version_and_repairs(
    start: Start, tmp_path: Path
) -> None:
    web, log = tmp_path / "out" / "default" / "web", tmp_path / "log"
    words = ("serve", "--listen", "127.0.0.1:0", "--export", "out", "--log-level", "error")
    command = f'echo "$CERTWRIGHT_CERTIFICATE $(cat "$CERTWRIGHT_DIR/tls.crt" | cksum)" >> {log}'

    def runs() -> list[str]:
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.startswith("default/web ")]

    server = start(*words, "--on-change", command)
    assert server.line().startswith("certwright is ready at https://127.0.0.1:")
    assert start("apply", "-f", str(EXAMPLES / "quickstart.yaml")).rest().status == 0
    until_so(lambda: len(runs()) == 1)
    assert not (tmp_path / "out" / "default" / "example-ca" / "tls.key").exists()
    (web / "tls.key").chmod(0o640)

    before = (web / "tls.crt").read_bytes()
    assert start("renew", "web", "-n", "default", "--wait", *PATIENT).rest().status == 0
    assert (web / "tls.crt").read_bytes() != before
    until_so(lambda: len(runs()) == 2)
    assert len(set(runs())) == 2
    assert (web / "tls.key").stat().st_mode & 0o777 == 0o640
    (web / "tls.crt").unlink()
    until_so((web / "tls.crt").exists)
    second = start("run", str(EXAMPLES / "quickstart.yaml"), "--data-dir", "other", "--export", "out").rest()
    assert (second.status, second.err.count("is the export directory of another certwright")) == (1, 1)
    server.end(signal.SIGTERM)

    # What has succeeded does not run again; what has not does.
    os.unlink(web / "..done")
    again = start(*words, "--on-change", command)
    until_so(lambda: len(runs()) == 3)
    again.end(signal.SIGTERM)
    lines = log.read_text().splitlines()
    assert sorted({line.split()[0] for line in lines}) == [
        "default/alice",
        "default/example-ca",
        "default/web",
    ]
    assert len(lines) == 5


def test_run_once_waits_for_the_command_and_fails_with_it(start: Start) -> None:
    words = ("run", str(EXAMPLES / "quickstart.yaml"), "--once", "--listen", "127.0.0.1:0", *PATIENT)
    failed = start(*words, "--on-change", "exit 3").rest()
    assert failed.status == 1
    assert re.search(
        '--on-change command failed certificate=default/.* cause="it ended with status 3', failed.err
    )


def test_exported_files_are_no_deliverys(start: Start, tmp_path: Path) -> None:
    inner = tmp_path / "out" / "default"
    inner.mkdir(parents=True)
    for root in (tmp_path, inner, tmp_path / "out"):
        words = ("--export", "out", "--delivery-root", f"web={root}")
        for command in (("serve", *words), ("run", str(EXAMPLES / "quickstart.yaml"), *words)):
            outcome = start(*command).rest()
            assert outcome.status == 2
            assert f"--delivery-root web={root} and --export out overlap" in outcome.err


def test_a_half_edited_secret_replaces_no_files_and_is_an_event(start: Start, tmp_path: Path) -> None:
    web = tmp_path / "out" / "default" / "web"
    # Nothing repairs the Secret.
    controllers = "*,-certificates-trigger"
    server = serve(start, "--export", "out", "--controllers", controllers)
    certificate, key = server_pair("localhost")
    certificate_yaml = (
        "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: web}, "
        "spec: {dnsNames: [localhost], secretName: web, privateKey: {encoding: PKCS8}, "
        "issuerRef: {name: none}}}"
    )
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}, "type": "kubernetes.io/tls"}
    data = {"tls.crt": certificate, "tls.key": key}
    for other in (key, server_pair("other")[1]):
        data["tls.key"] = other
        encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
        (tmp_path / "secret.json").write_text(json.dumps({**secret, "data": encoded}))
        (tmp_path / "certificate.yaml").write_text(certificate_yaml)
        assert start("apply", "-f", "secret.json", "-f", "certificate.yaml").rest().status == 0
        until_so((web / "tls.key").exists)
    until_so(lambda: "NotExported" in start("events", "certificate/web").rest().out)
    assert (web / "tls.key").read_bytes() == key
    server.kill(signal.SIGTERM)
    assert "files not written; trying again" in server.rest().err


def test_a_delivery_root_belongs_to_one_process_until_it_ends(start: Start, tmp_path: Path) -> None:
    roots = tmp_path / "roots"
    roots.mkdir()
    (tmp_path / "link").symlink_to(roots)
    words = (
        "--listen",
        "127.0.0.1:0",
        "--delivery-root",
        f"a={roots}",
        "--delivery-root",
        "b=link",
    )
    first = start("serve", "--data-dir", "one", *words)
    first.line()
    second = start("serve", "--data-dir", "two", *words[:4]).rest()
    assert second.status == 1
    assert f"error: --delivery-root a={roots}: another certwright delivers to that directory" in second.err
    first.kill(signal.SIGKILL)
    first.rest()
    assert start("serve", "--data-dir", "two", *words).line().startswith("certwright is ready at ")


_DELIVERY = """
apiVersion: certwright.io/v1alpha1
kind: Delivery
metadata: {name: %s}
spec: {certificateRef: {name: web}, root: %s, path: %s}
---
"""


def test_renew_waits_until_the_renewed_certificate_is_delivered(start: Start, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    serve(start, "--delivery-root", "tls=root")
    assert start("apply", "-f", str(EXAMPLES / "quickstart.yaml")).rest().status == 0
    (tmp_path / "delivery.yaml").write_text(_DELIVERY % ("web", "tls", "web"))
    assert start("apply", "-f", "delivery.yaml").rest().status == 0
    assert start("wait", "delivery/web", "--for=condition=Delivered", *PATIENT).rest().status == 0
    for _ in range(2):
        before = (tmp_path / "root/web/tls.crt").read_bytes()
        renewed = start("renew", "web", "--wait", *PATIENT).rest()
        assert renewed.status == 0, renewed.err
        assert renewed.out.splitlines()[1:] == [
            "certificate.cert-manager.io/web renewed",
            "delivery.certwright.io/web delivered",
        ]
        assert (tmp_path / "root/web/tls.crt").read_bytes() != before

    (tmp_path / "lost.yaml").write_text(_DELIVERY % ("lost", "tsl", "web"))
    assert start("apply", "-f", "lost.yaml").rest().status == 0
    lost = start("renew", "web", "--wait", "--timeout=4").rest()
    assert (lost.status, "delivery.certwright.io/web delivered\n" in lost.out) == (1, True), lost
    assert "delivery.certwright.io/lost: not within 4 s: not processed yet" in lost.err


def test_a_command_without_a_directory_is_refused(start: Start) -> None:
    outcome = start("serve", "--on-change", "true").rest()
    assert outcome.status == 2
    assert outcome.err.startswith("error: --on-change and --export-ca-keys need --export DIR; ")
