"""`certwright expiring`: a server's certificates, files and hosts by expiry."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import os
import re
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme
import yaml
from click.testing import CliRunner

from certwright.cli.main import program
from cli.calls import PATIENT, Cli
from support.programs import free_port

KEYS = [
    "source",
    "namespace",
    "name",
    "names",
    "issuer",
    "serialNumber",
    "fingerprint",
    "notBefore",
    "notAfter",
    "daysLeft",
    "renewalTime",
    "servedAt",
    "problem",
]
MANIFESTS = """
{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: own}, spec: {selfSigned: {}}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web}
spec: {secretName: web-tls, dnsNames: [web.example.com], issuerRef: {name: own}, duration: 2160h}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: waiting}
spec: {secretName: waiting, dnsNames: [waiting.example.com], issuerRef: {name: missing}}
"""


class Leaves:
    """A CA whose certificates end when a test says."""

    def __init__(self) -> None:
        self._ca = trustme.CA(key_type=trustme.KeyType.ECDSA, organization_name="Other")

    def issue(self, name: str, days: float) -> trustme.LeafCert:
        now = datetime.now(UTC)
        return self._ca.issue_cert(
            name,
            key_type=trustme.KeyType.ECDSA,
            not_before=now - timedelta(days=400),
            not_after=now + timedelta(days=days, minutes=5),
        )


@pytest.fixture(scope="module")
def leaves() -> Leaves:
    return Leaves()


@contextlib.contextmanager
def serving(chain: Path, key: Path) -> Iterator[str]:
    """A TLS server with that certificate; its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def written(leaf: trustme.LeafCert, folder: Path, name: str) -> tuple[Path, Path]:
    """The certificate's chain and key as files."""
    chain, key = folder / f"{name}.crt", folder / f"{name}.key"
    chain.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
    key.write_bytes(leaf.private_key_pem.bytes())
    return chain, key


def test_certificates_and_secrets_of_the_server(
    cli: Cli, namespace: str, leaves: Leaves, tmp_path: Path
) -> None:
    here = ("-n", namespace)
    assert cli("expiring", *here).out == "no certificate was found\n"
    chain, key = written(leaves.issue("legacy.example.com", 12), tmp_path, "legacy")
    assert cli("apply", *here, "-f", "-", stdin=MANIFESTS + _secret("legacy", chain, key)).status == 0
    assert cli("wait", "certificate/web", "--for=condition=Ready", *here, *PATIENT).status == 0

    everything = cli("expiring", *here, "-o", "json")
    assert (everything.status, everything.err) == (0, "")
    legacy, web, waiting = json.loads(everything.out)
    assert list(web) == KEYS
    assert (web["source"], web["namespace"], web["name"]) == ("Certificate", namespace, "web")
    assert (web["names"], web["issuer"], web["daysLeft"]) == (["web.example.com"], "Issuer/own", 89)
    assert web["renewalTime"] < web["notAfter"]
    assert (legacy["source"], legacy["name"], legacy["daysLeft"]) == ("Secret", "legacy", 12)
    assert legacy["issuer"].endswith(",O=Other")
    assert legacy["renewalTime"] is None
    assert (waiting["name"], waiting["notAfter"], waiting["daysLeft"]) == ("waiting", None, None)
    assert yaml.safe_load(cli("expiring", *here, "-o", "yaml").out) == json.loads(
        cli("expiring", *here, "-o", "json").out
    )

    soon = cli("expiring", *here, "--within", "30d", "-o", "json").out
    assert [entry["name"] for entry in json.loads(soon)] == ["legacy"]
    assert cli("expiring", *here, "--within", "24h").out == "no certificate expires in that time\n"
    opaque = _secret("opaque", chain, key).replace("kubernetes.io/tls", "Opaque")
    assert cli("apply", *here, "-f", "-", stdin=opaque).status == 0
    for words in ((), ("-A",)):
        of_all = {
            (entry["namespace"], entry["name"])
            for entry in json.loads(cli("expiring", *words, "-o", "json").out)
        }
        assert {(namespace, name) for name in ("web", "legacy", "opaque")} <= of_all
    header, *lines = cli("expiring", *here).out.splitlines()
    assert re.split(r" {3,}", header) == [
        "SOURCE",
        "NAME",
        "ISSUER",
        "NOT AFTER",
        "DAYS LEFT",
        "RENEWS AT",
        "SERVED AT",
    ]
    assert re.split(r" {3,}", lines[0])[:2] == ["Secret", f"{namespace}/legacy"]


def test_a_server_that_presents_an_older_certificate_is_seen(
    cli: Cli, namespace: str, leaves: Leaves, tmp_path: Path
) -> None:
    old, new = leaves.issue("www.example.com", 20), leaves.issue("www.example.com", 80)
    chain, key = written(new, tmp_path, "new")
    assert cli("apply", "-n", namespace, "-f", "-", stdin=_secret("www", chain, key)).status == 0
    with serving(*written(old, tmp_path, "old")) as stale, serving(chain, key) as current:
        outcome = cli("expiring", "-n", namespace, "--scan", stale, "--scan", current, "-o", "json")
        only = cli("expiring", "-n", namespace, "--scan", f"www.example.com@{stale}", "--only-scanned")
        right = cli("expiring", "-n", namespace, "--scan", f"www.example.com@{current}", "--only-scanned")
        other = cli("expiring", "-n", namespace, "--scan", f"else.example.com@{stale}", "--only-scanned")
    by_name = {entry["name"]: entry for entry in json.loads(outcome.out)}
    problem = f"{stale} serves an older certificate than {namespace}/www; reload the server"
    assert (outcome.status, outcome.err) == (1, f"error: {problem}\n")
    assert (by_name[stale]["problem"], by_name[current]["problem"]) == (problem, None)
    assert (only.status, only.err) == (1, f"error: www.example.com@{problem}\n")
    assert [line.split()[0] for line in only.out.splitlines()] == ["SOURCE", "Host"]
    assert (right.status, right.err, other.status) == (0, "", 1)
    assert by_name["www"]["servedAt"] == [current]
    assert (by_name[stale]["daysLeft"], by_name[current]["daysLeft"]) == (20, 80)


def test_a_user_who_may_not_read_secrets_gets_the_certificates(
    cli: Cli, namespace: str, tmp_path: Path
) -> None:
    here = ("-n", namespace)
    account = f"""
{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: viewer}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: viewer}}
rules: [{{apiGroups: [cert-manager.io], resources: [certificates], verbs: [list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: viewer}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: viewer}}
subjects: [{{kind: ServiceAccount, name: viewer, namespace: {namespace}}}]
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata: {{name: viewer, annotations: {{kubernetes.io/service-account.name: viewer}}}}
"""
    assert cli("apply", *here, "-f", "-", stdin=MANIFESTS + "---" + account).status == 0
    assert cli("wait", "certificate/web", "--for=condition=Ready", *here, *PATIENT).status == 0
    outcome = cli("get", "secret", "viewer", *here, "-o", "json")
    token = base64.b64decode(json.loads(outcome.out)["data"]["token"]).decode()
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    config["users"][0]["user"] = {"token": token}
    limited = tmp_path / "kubeconfig"
    limited.write_text(yaml.safe_dump(config))

    result = cli("expiring", *here, "--kubeconfig", str(limited), "-o", "json")
    assert result.status == 0
    assert result.err.startswith("warning: Secrets are left out: ")
    web = next(entry for entry in json.loads(result.out) if entry["name"] == "web")
    assert (web["daysLeft"], web["fingerprint"]) == (89, None)

    assert cli("expiring", "-A", "--kubeconfig", str(limited)).status == 1
    config["contexts"][0]["context"]["namespace"] = namespace
    limited.write_text(yaml.safe_dump(config))
    result = cli("expiring", "--kubeconfig", str(limited), "-o", "json")
    assert result.status == 0
    assert result.err.startswith(f"warning: only namespace {namespace} is listed: ")
    assert web in json.loads(result.out)


def test_files_and_hosts_need_no_server(
    leaves: Leaves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "etc" / "deep"
    folder.mkdir(parents=True)
    chain, key = written(leaves.issue("www.example.com", 20), folder, "www")
    (folder / "copy.pem").write_bytes(b"a comment\r\n" + chain.read_bytes().replace(b"\n", b"\r\n"))
    gone = leaves.issue("gone.example.com", -3).cert_chain_pems[0].bytes().decode()
    (folder / "gone.cer").write_bytes(ssl.PEM_cert_to_DER_cert(gone))
    (folder / "notes.txt").write_text("nothing")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    (folder / "..0123456789abcdef").mkdir()
    (folder / "..0123456789abcdef" / "www.crt").write_bytes(chain.read_bytes())
    with serving(chain, key) as address:
        status, out, err = _alone("--files", "etc", "--files", "etc/*/*.crt", "--scan", address, "-o", "json")
    assert (status, err) == (
        0,
        "warning: no server is configured (see --kubeconfig): only files and hosts are listed\n",
    )
    expired, host, file = sorted(
        json.loads(out), key=lambda entry: (entry["daysLeft"], -len(entry["source"]))
    )[:3]
    assert (expired["name"], expired["daysLeft"]) == ("etc/deep/gone.cer", -3)
    www = {entry["source"]: entry for entry in (host, file)}
    assert www["File"]["name"] == "etc/deep/copy.pem"
    assert www["File"]["servedAt"] == ["etc/deep/www.crt", address]
    assert www["Host"]["servedAt"] == ["etc/deep/copy.pem", "etc/deep/www.crt"]
    assert len(json.loads(out)) == 3


def test_what_cannot_be_read_is_reported_after_the_rest(
    leaves: Leaves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(leaves.issue("www.example.com", 20), tmp_path, "www")
    (tmp_path / "bad.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    dead = f"127.0.0.1:{free_port()}"
    named = [word for path in ("www.crt", "bad.pem", "none.pem", "www.key") for word in ("--files", path)]
    status, out, err = _alone(*named, "--scan", dead, "-o", "prometheus")
    assert status == 1
    assert [line.partition(": ")[2].partition(": ")[0] for line in err.splitlines()[1:]] == [
        "bad.pem",
        "none.pem",
        "www.key",
        f"{dead} cannot be reached",
    ]
    samples = dict(line.rsplit(" ", 1) for line in out.splitlines() if not line.startswith("#"))
    host = f'{{source="Host",namespace="",name="{dead}"}}'
    assert samples[f"certwright_inventory_readable{host}"] == "0"
    file = '{source="File",namespace="",name="www.crt"}'
    assert samples[f"certwright_inventory_readable{file}"] == "1"
    assert float(samples[f"certwright_inventory_expiration_timestamp_seconds{file}"]) > 1e9


def test_csv_is_no_formula_for_a_spreadsheet(
    leaves: Leaves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chain, _ = written(leaves.issue("www.example.com", 20), tmp_path, "www")
    chain.rename(tmp_path / "=1+1.crt")
    rows = list(csv.reader(io.StringIO(_alone("--files", "*.crt", "-o", "csv")[1])))
    assert rows[0] == KEYS
    assert dict(zip(rows[0], rows[1], strict=True))["name"] == "'=1+1.crt"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--within", "30"), 'write e.g. "30d"'),
        (("--within", "-1h"), "cannot be negative"),
        (("--scan", "https://a"), "unknown protocol"),
    ],
)
def test_wrong_options_are_usage_errors(words: tuple[str, ...], reason: str) -> None:
    status, _, err = _alone(*words)
    assert status == 2
    assert reason in " ".join(err.split())


def _alone(*words: str) -> tuple[int, str, str]:
    """The program where no server is configured."""
    runner = CliRunner(env={"KUBECONFIG": ""})
    result = runner.invoke(program, ["expiring", *words], prog_name="certwright")
    return result.exit_code, result.stdout, result.stderr


def _secret(name: str, chain: Path, key: Path) -> str:
    data = {"tls.crt": chain.read_text(), "tls.key": key.read_text()}
    metadata = {"name": name}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata}
    return f"---\n{json.dumps(secret | {'stringData': data})}\n"
