"""`serve`, `controllers` and `run` as processes: what they print, which of them works, and how they end."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from certwright.app import opening
from certwright.cli import access
from certwright.cli.main import program
from certwright.kube.api.core import NAMESPACES
from certwright.kube.api.errors import Unreachable
from certwright.kube.client.rest import Client
from certwright.pki.certificates import read_chain
from certwright.pki.keys import encode_private_key
from cli.calls import AT_WORK, EXAMPLES, PATIENT, Cli, Process, Start, issue_quickstart, serve
from issuers.authority import new_root
from support.acme_proxy import balancing
from support.etcd import Etcd, running_etcd
from support.programs import free_port, running
from support.real import require
from support.waiting import until_so

NO_ISSUER = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: shop}
spec: {secretName: web-tls, dnsNames: [web.example.test], issuerRef: {name: nobody}}
"""


def test_serve_says_one_line_when_it_is_ready_and_ends_on_a_signal(start: Start, tmp_path: Path) -> None:
    process = start("serve", "--listen", "127.0.0.1:0")
    line = process.line()
    assert line.startswith("certwright is ready at https://127.0.0.1:")
    assert line.endswith("; kubeconfig certwright-data/kubeconfig")
    kubeconfig = tmp_path / "certwright-data" / "kubeconfig"
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert "certificate-authority-data" in kubeconfig.read_text()
    process.end()


def test_a_second_serve_on_the_same_data_is_refused(start: Start) -> None:
    first = serve(start)
    second = start("serve", "--listen", "127.0.0.1:0").rest()
    assert second.status == 1
    assert second.err.startswith("error: certwright-data is in use by another certwright (process ")
    first.end(signal.SIGTERM)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--data-dir", "file/x"], "error: cannot write to file/x: Not a directory"),
        (["--store", "etcd://"], "error: --store etcd://HOST:PORT[,HOST:PORT…]: one member at least"),
        (["--store", "memoryy"], "error: --store memoryy: did you mean memory? (write ./memoryy for a file"),
        (["--store", "etc://x"], "error: --store etc://x: etc:// is not known; did you mean etcd://x?"),
        (["--store", "postgres://x"], "error: --store postgres://x: postgres:// is not known; write etcd://"),
        (["--store", "objects"], "error: --store objects: not a path; write ./objects for a file of that"),
        (["--controllers", "no-such"], "no-such"),
        (["--feature-gates", "X=true"], "error: --feature-gates: unrecognized feature gate: X; there are"),
        (["--store", "etcd://h:1/path"], "without paths"),
        (["--store", "etcds://h:1", "--etcd-certfile", "f"], "go together"),
        (["--store", "etcd://h:1", "--etcd-cafile", "f"], "etcds://"),
        (["--store", "etcd://h:1", "--etcd-user", "u"], "--etcd-password-file"),
        (["--etcd-user", "u"], "need --store etcd://"),
        (["--dns01-recursive-nameservers", "192.0.2.1:dns"], "--dns01-recursive-nameservers: "),
        (["--dns01-recursive-nameservers", "https://a:b@1.1.1.1/"], "contains a user name or a password"),
        (
            ["--acme-http01-solver-nameservers", "https://1.1.1.1/"],
            "only --dns01-recursive-nameservers may name",
        ),
        (["--acme-http01-solver-nameservers", "1.1.1.1,:53"], "--acme-http01-solver-nameservers: "),
        (["--tlsalpn01-backend", "127.0.0.1:1"], "it needs --tlsalpn01-listen"),
        (["--store", "./no-database.sqlite"], "no-database.sqlite"),
    ],
)
def test_what_cannot_work_is_told_in_one_sentence(
    start: Start, tmp_path: Path, words: list[str], sentence: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "no-database.sqlite").write_bytes(b"this is not a database" * 1000)
    outcome = start("serve", "--listen", "127.0.0.1:0", *words).rest()
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("error: ")
    assert sentence in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("encryption.key", "the key file {path} cannot be read (Is a directory)"),
        (
            "pki/admin.token",
            "{path} cannot be used: Is a directory; it has to be a file of the user that runs this",
        ),
    ],
)
def test_a_file_of_the_data_directory_that_cannot_be_read_is_named(
    start: Start, tmp_path: Path, name: str, sentence: str
) -> None:
    path = Path("certwright-data", name)
    (tmp_path / path).mkdir(parents=True)
    outcome = start("serve", "--listen", "127.0.0.1:0").rest()
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1] == f"error: {sentence.format(path=path)}"


def test_run_once_issues_exports_and_ends(start: Start, tmp_path: Path) -> None:
    openssl = require("openssl")
    words = ("run", str(EXAMPLES / "quickstart.yaml"), "--once", "--listen", "127.0.0.1:0", *PATIENT)
    outcome = start(*words).rest()
    assert (outcome.status, outcome.err) == (0, "")
    for name in ("example-ca", "web", "alice"):
        assert f"default/{name}" in outcome.out
    web = tmp_path / "certwright-export" / "default" / "web"
    assert {path.name for path in web.glob("[!.]*")} == {"tls.crt", "tls.key", "ca.crt"}
    assert stat.S_IMODE((web / "tls.key").stat().st_mode) == 0o600
    command = [openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca.crt", "tls.crt"]
    assert (
        subprocess.run(command, cwd=web, capture_output=True, text=True, check=True).stdout == "tls.crt: OK\n"
    )

    # Once more: nothing is issued anew, nothing is written again.
    before = (web / "tls.crt").stat().st_ino
    again = start(*words).rest()
    assert (again.status, again.err) == (0, "")
    assert "certificate.cert-manager.io/web unchanged" in again.out
    assert (web / "tls.crt").stat().st_ino == before


def test_run_once_waits_for_what_a_changed_manifest_asks_for(start: Start, tmp_path: Path) -> None:
    manifest = (EXAMPLES / "quickstart.yaml").read_text()
    file = tmp_path / "x.yaml"
    for name in ("www.example.test", "changed.example.test"):
        file.write_text(manifest.replace("www.example.test", name))
        outcome = start("run", "x.yaml", "--once", "--listen", "127.0.0.1:0", *PATIENT).rest()
        assert (outcome.status, outcome.err) == (0, "")
        pem = (tmp_path / "certwright-export" / "default" / "web" / "tls.crt").read_bytes()
        assert read_chain(pem)[0].dns_names == ("web.example.test", name)


def in_readme(tmp_path: Path) -> list[str]:
    """What `make run` prints after the installation, in the README."""
    text = (EXAMPLES.parent / "README.md").read_text()
    block = text.partition("```console\n$ make run\n")[2].partition("```")[0]
    shown = block.replace("/home/you/certwright/", f"{tmp_path}/")
    return [line for line in shown.splitlines() if not line.endswith("…")]


def undated(lines: Iterable[str]) -> set[str]:
    """The lines without times, widths of columns and the port."""
    plain = (re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d|(?<=127\.0\.0\.1:)\d+", "…", line) for line in lines)
    called = re.compile(r"^\s*\S+(?: -m certwright)?(?= status certificate)")
    return {" ".join(called.sub("certwright", line).split()) for line in plain}


def test_run_keeps_serving_until_it_is_told_to_end(start: Start, tmp_path: Path) -> None:
    process = start("run", str(EXAMPLES / "quickstart.yaml"), "--listen", "127.0.0.1:0", *PATIENT)
    lines = process.lines_until("Ctrl-C ends it")
    assert any(line.split()[:2] == ["default/web", "yes"] for line in lines)
    assert f"  export KUBECONFIG={tmp_path}/certwright-data/kubeconfig" in lines
    # A slow machine also prints the steps before Ready.
    assert not undated(in_readme(tmp_path)) - undated(lines)
    renew = start("renew", "web", "-n", "default").rest()
    assert (renew.status, renew.err) == (0, "")
    shown = process.lines_until("revision 2 is valid until")
    assert shown[-1].startswith("default/web: ")
    process.end()


def test_run_once_tells_what_each_certificate_waits_for(start: Start, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(NO_ISSUER)
    words = ("run", "x.yaml", "--listen", "127.0.0.1:0")
    first = start(*words, *PATIENT)
    first.lines_until("shop/web: waiting for Issuer nobody")
    first.kill(signal.SIGINT)
    place = "x.yaml: document 1, line 2: Certificate shop/web"
    assert first.rest().err == f"warning: {place}: namespace shop did not exist; it has been created\n"
    outcome = start(*words, "--once", "--timeout", "0.5").rest()
    assert (outcome.status, outcome.err) == (
        1,
        "error: certificate shop/web: waiting for Issuer nobody, which does not exist in namespace shop; "
        "create it, or correct spec.issuerRef; issuance then continues automatically\n",
    )


def test_run_once_fails_when_a_document_is_wrong_though_others_go_through(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text((EXAMPLES / "quickstart.yaml").read_text() + "---\na: [\n")
    outcome = start("run", "x.yaml", "--once", "--listen", "127.0.0.1:0", *PATIENT).rest()
    assert outcome.status == 1
    assert outcome.err.startswith("error: x.yaml: line ")
    assert (tmp_path / "certwright-export" / "default" / "web" / "tls.crt").exists()


def test_run_takes_a_free_port_when_the_usual_one_is_in_use(start: Start, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    first = start("run", "x.yaml", "--data-dir", "a")
    assert first.line().startswith("certwright is ready at ")
    second = start("run", "x.yaml", "--data-dir", "b", "--once").rest()
    assert second.status == 0
    assert second.err == "port 8443 is in use; using a free one instead (--listen chooses)\n"
    first.kill(signal.SIGTERM)
    assert first.rest().status == 0


def test_controllers_work_from_a_process_of_their_own(start: Start, tmp_path: Path) -> None:
    server = serve(start, "--controllers", "")
    assert start("apply", "-f", str(EXAMPLES / "quickstart.yaml")).rest().status == 0
    unmoved = start("status", "certificate", "web", "-n", "default").rest()
    assert unmoved.out.startswith("Certificate default/web: not processed by any controller yet.")
    controllers = start("controllers", "--kubeconfig", "certwright-data/kubeconfig")
    controllers.lines_until(AT_WORK)
    done = start("wait", "certificates", "--all", "--for=condition=Ready", *PATIENT).rest()
    assert done.status == 0, done.err
    controllers.end(signal.SIGTERM)
    server.end(signal.SIGTERM)


def test_the_server_ends_in_time_while_controllers_watch_it(start: Start, tmp_path: Path) -> None:
    server = serve(start, "--data-dir", "data", "--controllers", "")
    start("controllers", "--kubeconfig", "data/kubeconfig").lines_until(AT_WORK)
    server.end()


def test_all_examples_run_as_they_are(start: Start, tmp_path: Path) -> None:
    openssl = require("openssl")
    outcome = start("run", str(EXAMPLES), "--once", "--listen", "127.0.0.1:0", *PATIENT).rest()
    assert outcome.status == 0, outcome.err
    # Of many objects, a summary; nothing else.
    assert re.fullmatch(r"(\d+ (created|unchanged|configured)(, )?)*\n", outcome.err), outcome.err
    exported = {f"{path.parent.name}/{path.name}" for path in (tmp_path / "certwright-export").glob("*/*")}
    assert exported >= {"default/web", "default/alice", "default/ed25519", "default/rsa-3072", "shop/web"}
    command = [openssl, "verify", "-CAfile", "ca.crt", "-untrusted", "tls.crt", "tls.crt"]
    folder = tmp_path / "certwright-export" / "shop" / "web"
    assert (
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
        == "tls.crt: OK\n"
    )
    assert (folder / "tls.crt").read_text().count("BEGIN CERTIFICATE") == 2


def test_the_tour_in_python_runs_as_it_is(cli: Cli, daemon: Path) -> None:
    assert cli("apply", "-f", str(EXAMPLES / "quickstart.yaml")).status == 0
    environment = {**os.environ, "KUBECONFIG": str(daemon)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "tour.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("tour.example.test, signed by CN=Example CA") == 2


def test_get_watches_what_changes(start: Start, cli: Cli, namespace: str, daemon: Path) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: longer-name}\ndata: {a: '1'}\n"
    cli("apply", "-f", "-", "-n", namespace, stdin=manifest)
    assert cli("wait", "cm", "kube-root-ca.crt", "--for=create", "-n", namespace, *PATIENT).status == 0
    watch = start("get", "cm", "-w", "-n", namespace, "--kubeconfig", str(daemon))
    assert watch.line().split() == ["NAME", "DATA", "AGE"]
    assert watch.line().split()[:2] == ["kube-root-ca.crt", "1"]
    assert watch.line().split()[:2] == ["longer-name", "1"]
    # No column but the age changes.
    cli("apply", "-f", "-", "-n", namespace, stdin=manifest.replace("'1'", "'2'"))
    cli(
        "apply",
        "-f",
        "-",
        "-n",
        namespace,
        stdin=manifest.replace("longer-name", "x").replace("{a: ", "{b: '2', a: "),
    )
    assert watch.line().startswith("x                  2      ")
    cli("delete", "cm", "x", "-n", namespace)
    assert watch.line().startswith("x                  2      ")
    watch.kill(signal.SIGINT)
    assert watch.rest().status == 130


def test_what_was_issued_outlives_a_kill(start: Start, tmp_path: Path) -> None:
    process = serve(start)
    issue_quickstart(start)
    before = start("get", "secret", "web-tls", "-o", "yaml").rest().out
    process.kill(signal.SIGKILL)
    process.rest()
    again = serve(start)
    assert start("get", "secret", "web-tls", "-o", "yaml").rest().out == before
    again.end()


def page(address: str, path: str) -> bytes:
    """What is served there over plain HTTP."""
    with closing(http.client.HTTPConnection(address, timeout=200)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read()


def test_controllers_serve_their_metrics_where_they_are_told_to(start: Start) -> None:
    server = serve(start, "--controllers", "")
    kubeconfig = ("--kubeconfig", "certwright-data/kubeconfig")
    controllers = start("controllers", *kubeconfig, "--metrics-listen-address", "127.0.0.1:0")
    label, _, address = controllers.line().partition(" at ")
    assert label == "metrics are"
    controllers.lines_until(AT_WORK)
    taken = address.removeprefix("http://").removesuffix("/metrics")
    assert b'\ncertmanager_controller_sync_call_count{controller="certificates"} 0\n' in page(
        taken, "/metrics"
    )
    assert page(taken, "/livez") == b"ok"
    second = start("controllers", *kubeconfig, "--metrics-listen-address", taken).rest()
    assert (second.status, second.err.partition(taken)[0]) == (1, "error: cannot serve metrics on ")
    third = start("controllers", *kubeconfig, "--metrics-listen-address", "here").rest()
    assert third.status == 2
    assert "is not HOST:PORT" in third.err
    controllers.end()
    server.end()


def test_of_two_controllers_the_second_waits_for_the_lease_of_the_first(start: Start) -> None:
    server = serve(start, "--controllers", "")
    # Longer than the test may take: nobody loses the lease who is slow, nobody gets it who was not given it.
    terms = {"lease-duration": "30m", "renew-deadline": "20m", "retry-period": "100ms"}
    flags = ["--kubeconfig", "certwright-data/kubeconfig"]
    flags += [f"--leader-election-{name}={value}" for name, value in terms.items()]
    first = start("controllers", *flags)
    first.lines_until(AT_WORK)
    second = start("controllers", *flags)
    assert re.match(f"waiting for the lease: ({socket.gethostname()}_|it could not be read)", second.line())
    first.end()
    assert second.line().startswith(AT_WORK)
    second.end()
    third = start("controllers", *flags, "--leader-election-renew-deadline", "30m").rest()
    assert (third.status, third.err) == (
        1,
        "error: the lease duration must be longer than the renew deadline\n",
    )
    fourth = start("controllers", *flags, "--kube-api-qps", "60").rest()
    assert "--kube-api-burst not below it" in fourth.err
    server.end()


def test_a_daemon_with_a_json_log_from_start_to_stop(start: Start, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("first-token,auditor,1\n")
    words = ("--token-auth-file", str(tokens), "--tls-san", "pki.example.test", "--tls-san", "192.0.2.9")
    process = start("serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "info", *words)
    ready = json.loads(process.line())
    assert ready["msg"].startswith(f"certwright is ready at {ready['address']};")
    assert "https://pki.example.test:" in json.loads(process.line())["msg"]
    port = int(ready["address"].rpartition(":")[2])
    folder = tmp_path / "certwright-data"
    facts = read_chain((folder / "pki" / "server.crt").read_bytes())[0]
    assert "pki.example.test" in facts.dns_names
    assert {"192.0.2.9", "127.0.0.1"} <= set(facts.ip_addresses)

    assert status(port, "/readyz") == 200
    assert is_healthy(port)
    assert status(port, "/version") == 401
    assert status(port, "/version", "first-token") == 200
    tokens.write_text("second-token,auditor,1\n")
    process.kill(signal.SIGHUP)
    until_so(lambda: status(port, "/version", "second-token") == 200)
    assert status(port, "/version", "first-token") == 401

    admin = (folder / "pki" / "admin.token").read_text()
    assert status(port, "/api/v1/secrets", admin) == 200
    assert CliRunner().invoke(program, ["user", "rotate-admin", "--data-dir", str(folder)]).exit_code == 0
    another = (folder / "pki" / "admin.token").read_text()
    assert another in (folder / "kubeconfig").read_text()
    until_so(lambda: status(port, "/api/v1/secrets", another) == 200)
    assert status(port, "/api/v1/secrets", admin) == 401

    process.kill(signal.SIGTERM)
    outcome = process.rest()
    assert not is_healthy(port)
    assert outcome.status == 0
    lines = [json.loads(line) for line in outcome.err.splitlines()]
    messages = [line["msg"] for line in lines]
    started, own = messages.index("started"), messages.index("the server's own certificate was issued")
    assert "the server's own CA was issued" in messages[:own]
    assert "the front proxy's CA was issued" in messages[:started]
    assert messages[-1] == "stopping"
    assert (lines[started]["dataDir"], lines[-1]["reason"]) == ("certwright-data", "SIGTERM")
    assert "pki.example.test" in lines[own]["names"].split(",")
    assert any(message.startswith("SIGHUP: reloaded the token files") for message in messages)
    assert "the administrator's token was replaced; the former one is no longer accepted" in messages
    assert not any(token in outcome.err for token in (admin, another, "second-token"))


def is_healthy(port: int) -> bool:
    """What the HEALTHCHECK of the image says of the server."""
    text = (EXAMPLES.parent / "deploy" / "Containerfile").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("HEALTHCHECK"))
    command = [sys.executable, *json.loads(line.partition(" CMD ")[2])[1:]]
    url = f"https://127.0.0.1:{port}/livez"
    return not subprocess.run(
        command, env={**os.environ, "CERTWRIGHT_HEALTH_URL": url}, check=False
    ).returncode


def status(port: int, path: str, token: str = "") -> int:
    context = ssl._create_unverified_context()  # noqa: S323
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    with closing(connection):
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("serve", "--listen", "127.0.0.1:99999"), 2, "port 99999 is too large"),
        (("serve", "--nosuch"), 2, "No such option '--nosuch'"),
        (("serve", "--etcd-servers-overrides=/secrets#http://e", "--listen=:99999"), 2, "no longer has any"),
        (("controllers", "--acme-process=", "--kubeconfig", "none"), 1, "--acme-process no longer has any"),
        (("run", "none.yaml"), 1, "none.yaml: cannot be read"),
    ],
)
def test_errors_and_warnings_at_the_start_are_json_lines_too(
    start: Start, words: tuple[str, ...], status: int, sentence: str
) -> None:
    outcome = start(*words, "--log-format", "json").rest()
    lines = [json.loads(line) for line in (outcome.out + outcome.err).splitlines()]
    assert (outcome.status, {line["level"] for line in lines} <= {"warning", "error"}) == (status, True)
    assert any(sentence in line["msg"] for line in lines)


def test_run_with_a_json_log_prints_nothing_else(start: Start) -> None:
    words = ("run", str(EXAMPLES / "quickstart.yaml"), "--once", "--listen", "127.0.0.1:0", *PATIENT)
    outcome = start(*words, "--log-format=json").rest()
    assert outcome.status == 0
    printed, logged = (
        [json.loads(line) for line in text.splitlines()] for text in (outcome.out, outcome.err)
    )
    assert "certificate.cert-manager.io/web created" in [line["msg"] for line in printed]
    assert any(line["msg"].startswith("default/web: ready, valid until ") for line in printed)
    assert "default/web" in [line["certificate"] for line in logged if line["msg"] == "certificate issued"]
    assert (logged[-1]["msg"], logged[-1]["reason"]) == ("stopping", "done")


LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: cert-manager-controller, namespace: kube-system}
spec:
  holderIdentity: cert-manager-7d4b5
  leaseDurationSeconds: 3600
  acquireTime: "2026-01-01T00:00:00.000000Z"
  renewTime: "2026-01-01T00:00:00.000000Z"
"""


def holder(start: Start) -> str:
    """The holder of cert-manager's Lease."""
    outcome = start("get", "leases", "cert-manager-controller", "-n", "kube-system", "-o", "yaml").rest()
    return str((yaml.safe_load(outcome.out) or {}).get("spec", {}).get("holderIdentity", ""))


def test_serve_holds_the_lease_and_takes_its_own_over_after_a_kill(start: Start, tmp_path: Path) -> None:
    process = serve(start)
    before = holder(start)
    assert before == (tmp_path / "certwright-data" / "replica-identity").read_text().splitlines()[0]
    process.kill(signal.SIGKILL)
    process.rest()
    again = serve(start, "--log-level", "info")
    assert holder(start) == before
    issue_quickstart(start)
    again.kill(signal.SIGTERM)
    assert "wait" not in again.rest().err
    # A server that ends in good order has freed the lease.
    api = serve(start, "--controllers", "")
    assert holder(start) == ""
    api.end()


def test_serve_beside_another_holder_serves_and_its_controllers_wait(start: Start, tmp_path: Path) -> None:
    (tmp_path / "lease.yaml").write_text(LEASE)
    api = serve(start, "--controllers", "")
    assert start("apply", "-f", "lease.yaml").rest().status == 0
    api.end()
    server = serve(start)
    assert holder(start) == "cert-manager-7d4b5"
    server.kill(signal.SIGTERM)
    logged = server.rest().err
    assert "this server's controllers wait: cert-manager-7d4b5 holds the lease kube-system/" in logged
    always = serve(start, "--leader-elect=false")
    issue_quickstart(start)
    always.end()


def test_controllers_with_a_name_take_their_lease_over_after_a_kill(start: Start) -> None:
    server = serve(start, "--controllers", "")
    flags = ("controllers", "--kubeconfig", "certwright-data/kubeconfig", "--identity", "node-1")
    first = start(*flags)
    assert first.line().startswith(AT_WORK)
    assert holder(start) == "node-1"
    first.kill(signal.SIGKILL)
    first.rest()
    again = start(*flags)
    assert again.line().startswith(AT_WORK)
    again.end()
    server.end()


def test_a_copy_of_a_data_directory_has_an_identity_of_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    identity = opening.replica_identity(one)
    assert opening.replica_identity(one) == identity
    shutil.copytree(one, two)
    assert opening.replica_identity(two) != identity
    (one / "replica-identity").write_text("nonsense")
    assert opening.replica_identity(one) != identity


FOLDER = EXAMPLES / "external-issuer"


def test_the_sample_issuer_signs(
    start: Callable[..., Process], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(start, "--data-dir", "data")
    kubeconfig = str(tmp_path / "data" / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    root = new_root("Sample CA")
    (tmp_path / "ca.crt").write_bytes(root.pem)
    (tmp_path / "ca.key").write_bytes(encode_private_key(root.key))
    assert cli("apply", "-f", str(FOLDER / "install.yaml")).status == 0
    command = [sys.executable, str(FOLDER / "issuer.py"), str(tmp_path / "ca.crt"), str(tmp_path / "ca.key")]
    log = tmp_path / "issuer.log"
    with running(command, log, env={"KUBECONFIG": kubeconfig}):
        assert cli("apply", "-f", str(FOLDER / "certificate.yaml")).status == 0
        waited = cli("wait", "certificate", "by-sample", "--for=condition=Ready", *PATIENT)
        assert waited.status == 0, waited.err + log.read_text()
    assert "CN=Sample CA" in cli("inspect", "secret", "by-sample-tls").out


def served(start: Start, etcd: Etcd, name: str) -> tuple[Process, int]:
    """A server that is ready, and its port."""
    port = free_port()
    flags = ("--controllers", "", "--encryption-key-file", "shared.key")
    common = ("--data-dir", name, "--store", etcd.url, *flags)
    return serve(start, *common, listen=f"127.0.0.1:{port}"), port


@pytest.mark.real("etcd")
async def test_its_watches_are_continued_at_another_server(start: Start, tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        (first, port), (_, other) = served(start, etcd, "one"), served(start, etcd, "two")
        address = free_port()
        kubeconfig = tmp_path / "kubeconfig"
        text = (tmp_path / "one" / "kubeconfig").read_text()
        kubeconfig.write_text(re.sub(rf":{port}\b", f":{address}", text))
        choice = access.choose(kubeconfig, os.environ, tmp_path)
        async with balancing(address, [port, other]), AsyncExitStack() as stack:
            client = Client(access.connect(choice, access.load(choice, None)), user_agent="test")
            stack.push_async_callback(client.close)
            watch = await stack.enter_async_context(aclosing(client.watch(NAMESPACES, resource_version="")))
            assert await anext(watch)
            first.kill(signal.SIGSTOP)
            with pytest.raises(Unreachable, match="did not answer in time"):
                await anext(watch)
            again = await stack.enter_async_context(aclosing(client.watch(NAMESPACES, resource_version="")))
            assert await anext(again)
        first.kill(signal.SIGCONT)
