"""The commands against a real server."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path

import pytest

from cli.calls import PATIENT, Cli
from issuers.authority import new_root
from support.real import require
from support.waiting import until_so

SELF_SIGNED = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: selfsigned}
spec: {selfSigned: {}}
---
"""
CERTIFICATE = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, labels: {app: shop}}
spec:
  secretName: web-tls
  dnsNames: [web.example.test]
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: selfsigned}
"""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '1', b: '2'}\n"


def test_apply_creates_then_changes_then_leaves_alone(cli: Cli, namespace: str) -> None:
    def apply(manifest: str) -> str:
        outcome = cli("apply", "-f", "-", "-n", namespace, stdin=manifest)
        assert (outcome.status, outcome.err) == (0, "")
        return outcome.out

    assert apply(CONFIG_MAP) == "configmap/c created\n"
    assert apply(CONFIG_MAP) == "configmap/c unchanged\n"
    assert apply(CONFIG_MAP.replace("'2'", "'3'")) == "configmap/c configured\n"
    assert apply(CONFIG_MAP.replace(", b: '2'", "")) == "configmap/c configured\n"
    config_map = json.loads(cli("get", "cm", "c", "-n", namespace, "-o", "json").out)
    assert config_map["data"] == {"a": "1"}


def test_kubectl_and_apply_take_turns(cli: Cli, namespace: str, daemon: Path) -> None:
    kubectl = require("kubectl")

    def by_kubectl(manifest: str) -> str:
        command = [kubectl, "--kubeconfig", str(daemon), "-n", namespace, "apply", "-f", "-"]
        return subprocess.run(command, input=manifest, capture_output=True, text=True, check=True).stdout

    assert cli("apply", "-f", "-", "-n", namespace, stdin=CONFIG_MAP).out == "configmap/c created\n"
    assert by_kubectl(CONFIG_MAP) == "configmap/c unchanged\n"
    assert by_kubectl(CONFIG_MAP.replace("'2'", "'3'")) == "configmap/c configured\n"
    changed = cli("apply", "-f", "-", "-n", namespace, stdin=CONFIG_MAP.replace(", b: '2'", ""))
    assert changed.out == "configmap/c configured\n"
    assert json.loads(cli("get", "cm", "c", "-n", namespace, "-o", "json").out)["data"] == {"a": "1"}


def test_a_dry_run_changes_nothing(cli: Cli, namespace: str) -> None:
    outcome = cli("apply", "-f", "-", "-n", namespace, "--dry-run", stdin=CONFIG_MAP)
    assert outcome.out == "configmap/c created (dry run)\n"
    assert cli("get", "cm", "c", "-n", namespace).status == 1


def test_one_bad_document_does_not_keep_the_others_back(cli: Cli, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(
        CONFIG_MAP
        + "---\na: [\n---\n"
        + CERTIFICATE.replace("dnsNames", "dnsName")
        + "---\n"
        + CERTIFICATE.replace("[web.example.test]", "web.example.test")
        + "---\n"
        + CERTIFICATE.replace("name: web,", "name: Web_1,")
        + "---\n"
        + CERTIFICATE.replace("kind: Certificate", "kind: Certficate")
        + "---\nkind: Certificate\n---\n"
        + CONFIG_MAP.replace("name: c", "name: d")
    )
    outcome = cli("apply", "-f", str(file), "-n", namespace)
    assert outcome.status == 1
    assert outcome.out == "configmap/c created\nconfigmap/d created\n"
    lines = outcome.err.splitlines()
    assert all(line.startswith(f"error: {file}: ") for line in lines), lines
    for line, pattern in zip(
        lines,
        [
            r"line 7",
            r"Certificate web: spec\.dnsName: unknown field; did you mean `dnsNames`\?",
            r'Certificate web: spec\.dnsNames: Invalid value: "web\.example\.test": must be of type array;',
            r'Certificate Web_1: metadata\.name: Invalid value: "Web_1": .*; write e.g. "web-1"',
            r'kind: the server has no kind "Certficate" .*did you mean "Certificate"\?',
            r"line 48: apiVersion is missing",
        ],
        strict=True,
    ):
        assert re.search(pattern, line), line


def test_warnings_name_the_document_and_show_the_letters(cli: Cli, namespace: str, tmp_path: Path) -> None:
    spelled = CERTIFICATE.replace("web.example", "ехample").replace("spec:", "spec:\n  isCA: true")
    (tmp_path / "a.yaml").write_text(f"{CONFIG_MAP}---{spelled}")
    outcome = cli("apply", "-f", str(tmp_path / "a.yaml"), "-n", namespace)
    assert outcome.status == 0
    pattern = r'warning: .*/a\.yaml: .*Certificate web: spec\.dnsNames\[0\]: "ехample\.test" is not ASCII'
    assert re.match(pattern, outcome.err), outcome.err
    assert "is a CA and gets a new key" in cli("renew", "web", "-n", namespace).err


def test_a_name_that_yaml_takes_for_a_truth_value_is_told(cli: Cli, namespace: str) -> None:
    outcome = cli("apply", "-f", "-", "-n", namespace, stdin=CONFIG_MAP.replace("name: c", "name: no"))
    assert outcome.status == 1
    assert "metadata.name: false is not text; put quotes around it" in outcome.err


def test_a_folder_is_read_file_by_file(cli: Cli, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(CONFIG_MAP)
    (tmp_path / "a.json").write_text(
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}}'
    )
    (tmp_path / "notes.txt").write_text("nothing")
    outcome = cli("apply", "-f", str(tmp_path), "-n", namespace)
    assert outcome.out == "configmap/first created\nconfigmap/c created\n"


def test_files_that_are_not_there_or_empty_are_told(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "cannot be read: No such file" in cli("apply", "-f", str(tmp_path / "none.yaml")).err
    assert "holds no file that ends in" in cli("apply", "-f", str(tmp_path / "empty")).err
    nothing = cli("apply", "-f", "-", stdin="# only a comment\n")
    assert (nothing.status, nothing.err) == (1, "error: standard input contains no objects\n")


def test_a_namespace_that_does_not_exist_is_told(cli: Cli) -> None:
    outcome = cli("apply", "-f", "-", "-n", "nowhere", stdin=CONFIG_MAP)
    assert outcome.status == 1
    assert 'namespaces "nowhere" not found' in outcome.err


def test_a_document_of_another_namespace_than_asked_for_is_refused(cli: Cli, namespace: str) -> None:
    manifest = CONFIG_MAP.replace("{name: c}", "{name: c, namespace: default}")
    outcome = cli("apply", "-f", "-", "-n", namespace, stdin=manifest)
    assert outcome.status == 1
    assert f"metadata.namespace: is `default`, but --namespace says `{namespace}`" in outcome.err


def test_one_certificate_from_apply_to_delete(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    assert cli("apply", "-f", "-", *here, stdin=CERTIFICATE).status == 0

    assert cli("wait", "cert/web", "--for=condition=Issuing", *PATIENT, *here).status == 0
    waiting = cli("wait", "certificate", "web", "--for=condition=Ready", "--timeout=0", *here)
    assert waiting.status == 1
    assert "certificate.cert-manager.io/web: not within 0 s: " in waiting.err
    assert f"Issuer selfsigned, which does not exist in namespace {namespace}" in waiting.err
    story = cli("status", "certificate", "web", *here)
    assert story.status == 0
    assert story.out.startswith(
        f"Certificate {namespace}/web: waiting for Issuer selfsigned, which does not exist in namespace "
        f"{namespace}.\nWhat to do: create it, or correct spec.issuerRef; issuance then continues "
        "automatically.\n"
    )

    assert cli("apply", "-f", "-", *here, stdin=SELF_SIGNED).status == 0
    ready = cli("wait", "cert/web", "--for=condition=Ready", *PATIENT, *here)
    assert (ready.status, ready.out) == (0, "certificate.cert-manager.io/web condition met\n")
    assert (
        f"Certificate {namespace}/web: ready, valid until " in cli("status", "certificate", "web", *here).out
    )

    inside = cli("inspect", "secret", "web-tls", *here).out
    assert re.search(r"DNS names: +web\.example\.test\n", inside)
    assert "ECDSA 256, belongs to the certificate" in inside
    assert "PRIVATE KEY" not in inside

    assert cli("renew", "web", *here).out == f"Renewing certificate {namespace}/web\n"
    # Events are written after what they tell of.
    requested = r"Normal +Requested .*\"web-2\""
    until_so(lambda: bool(re.search(requested, cli("describe", "certificate", "web", *here).out)))
    assert "Diagnosis:" in cli("describe", "certificate", "web", *here).out

    assert cli("delete", "certificate", "web", *here).out == "certificate.cert-manager.io/web deleted\n"
    gone = cli("get", "certificate", "web", *here)
    assert (gone.status, gone.out) == (1, "")
    assert gone.err == (
        f'error: certificates.cert-manager.io "web" not found in namespace {namespace}; '
        "`certwright get certificates -A` lists all there are\n"
    )


def test_secrets_are_described_without_their_values(cli: Cli, namespace: str) -> None:
    manifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: correcthorse}\n"
    assert cli("apply", "-f", "-", "-n", namespace, stdin=manifest).status == 0
    described = cli("describe", "secret", "s", "-n", namespace).out
    assert re.search(r"password: +12 bytes", described)
    assert "correcthorse" not in described
    assert "Y29ycmVjdGhvcnNl" not in described


def test_get_prints_tables(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    cli("apply", "-f", "-", *here, stdin=SELF_SIGNED + CERTIFICATE)
    cli("wait", "cert", "--all", "--for=condition=Ready", *PATIENT, *here)
    lines = cli("get", "certificates", *here).out.splitlines()
    assert re.split(r" {3,}", lines[0]) == ["NAME", "READY", "SECRET", "NOT AFTER", "RENEWS AT", "AGE"]
    assert lines[1].split()[:3] == ["web", "True", "web-tls"]
    wide = cli("get", "certificates", *here, "-o", "wide").out.splitlines()
    assert wide[0].split()[:5] == ["NAME", "READY", "SECRET", "ISSUER", "STATUS"]
    everywhere = cli("get", "cert", "-A", "-l", "app=shop").out.splitlines()
    assert everywhere[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert any(line.split()[:2] == [namespace, "web"] for line in everywhere)
    several = cli("get", "issuers,certificates", *here).out
    assert "issuer.cert-manager.io/selfsigned" in several
    assert "certificate.cert-manager.io/web" in several
    assert cli("get", "cert-manager", *here, "-o", "name").out.count("cert-manager.io/") >= 3


def test_get_prints_objects(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    cli("apply", "-f", "-", *here, stdin=CONFIG_MAP)
    assert cli("get", "cm", "c", *here, "-o", "name").out == "configmap/c\n"
    text = cli("get", "cm/c", *here, "-o", "yaml").out
    assert '\n  a: "1"\n' in text or "\n  a: '1'\n" in text
    assert cli("apply", "-f", "-", *here, stdin=text).status in (0, 1)
    # Every namespace has the other one, soon after it was made.
    assert cli("wait", "cm", "kube-root-ca.crt", "--for=create", *PATIENT, *here).status == 0
    listed = json.loads(cli("get", "cm", *here, "-o", "json").out)
    names = [item["metadata"]["name"] for item in listed["items"]]
    assert (listed["kind"], names) == ("List", ["c", "kube-root-ca.crt"])


def test_nothing_found_is_said_on_standard_error(cli: Cli, namespace: str) -> None:
    outcome = cli("get", "certificates", "-n", namespace)
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err == f"no certificates in namespace {namespace} (-A searches all)\n"


def test_an_unknown_kind_is_answered_with_the_nearest_one(cli: Cli) -> None:
    outcome = cli("get", "certificats")
    assert outcome.status == 1
    assert outcome.err == 'error: the server has no kind "certificats"; did you mean "certificates"?\n'


def test_delete_takes_files_and_selectors(cli: Cli, namespace: str, tmp_path: Path) -> None:
    here = ("-n", namespace)
    file = tmp_path / "x.yaml"
    file.write_text(CONFIG_MAP + "---\n" + SELF_SIGNED)
    cli("apply", "-f", str(file), *here)
    outcome = cli("delete", "-f", str(file), *here)
    assert outcome.out == "issuer.cert-manager.io/selfsigned deleted\nconfigmap/c deleted\n"
    again = cli("delete", "-f", str(file), *here)
    assert (again.status, again.err.count("not found")) == (1, 2)
    assert cli("delete", "-f", str(file), *here, "--ignore-not-found").status == 0
    assert cli("delete", "cm", *here).status == 2
    cli("apply", "-f", str(file), *here)
    assert cli("delete", "cm", "--all", *here).out.startswith("configmap/c deleted\n")
    assert cli("delete", "secrets", "--all", *here).err == "no secrets to delete\n"
    assert cli("wait", "cm", "c", "--for=delete", *here).out == "configmap/c deleted\n"


def test_renew_of_nothing_is_told(cli: Cli, namespace: str) -> None:
    outcome = cli("renew", "nobody", "-n", namespace)
    assert (outcome.status, 'certificates.cert-manager.io "nobody" not found' in outcome.err) == (1, True)
    everything = cli("renew", "--all", "-n", namespace)
    assert everything.err == f"error: there is no such certificate in namespace {namespace}\n"


NAMED = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: named}
spec: {secretName: named, dnsNames: [a.example.org], issuerRef: {name: nowhere}}
---
apiVersion: acme.cert-manager.io/v1
kind: Order
metadata:
  name: named-1
  annotations:
    cert-manager.io/certificate-name: named
    certwright.io/not-before: "2099-01-01T00:00:00Z"
spec: {request: YQ==, dnsNames: [a.example.org], issuerRef: {name: nowhere}}
"""


def test_renew_reports_a_time_that_the_ca_has_named(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    assert cli("apply", "-f", "-", *here, stdin=NAMED).status == 0
    until_so(lambda: "Issuing" in cli("get", "certificate", "named", "-o", "yaml", *here).out)
    outcome = cli("renew", "named", *here)
    assert (outcome.status, outcome.out) == (0, "")
    assert "waits until 2099-01-01T00:00:00Z, the time that its issuer has named" in outcome.err


def test_a_wrong_token_is_told_as_such(cli: Cli, daemon: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "kubeconfig"
    stranger.write_text(re.sub(r"token: .*", "token: wrong", daemon.read_text()))
    outcome = cli("get", "certificates", "--kubeconfig", str(stranger))
    assert outcome.status == 1
    assert f"of {stranger} (from --kubeconfig) rejected the request: " in outcome.err
    assert "use the kubeconfig written at startup" in outcome.err


def test_a_kubeconfig_of_another_server_is_told_as_such(cli: Cli, daemon: Path, tmp_path: Path) -> None:
    other = tmp_path / "kubeconfig"
    ca = base64.b64encode(new_root("another server").pem).decode()
    other.write_text(
        re.sub(r"certificate-authority-data: .*", f"certificate-authority-data: {ca}", daemon.read_text())
    )
    outcome = cli("get", "certificates", "--kubeconfig", str(other))
    assert outcome.status == 1
    assert "is not trusted: " in outcome.err
    assert (
        f"if the kubeconfig {other} (from --kubeconfig) is that of another server, take the one"
        in outcome.err
    )


def test_a_name_that_is_not_in_the_servers_certificate_is_reported_with_the_flag(
    cli: Cli, daemon: Path, tmp_path: Path
) -> None:
    other = tmp_path / "kubeconfig"
    authority = "certificate-authority-data: "
    named = f"tls-server-name: pki.example.test\n    {authority}"
    other.write_text(daemon.read_text().replace(authority, named))
    outcome = cli("get", "certificates", "--kubeconfig", str(other))
    assert outcome.status == 1
    assert "start the server with --tls-san pki.example.test, or use one of its other names" in outcome.err
    assert "another server" not in outcome.err


@pytest.mark.parametrize("words", [("status", "certificate"), ("inspect", "secret"), ("delete", "issuer")])
def test_an_object_that_is_not_there_is_told_with_its_namespace(
    cli: Cli, namespace: str, words: tuple[str, str]
) -> None:
    outcome = cli(*words, "nobody", "-n", namespace)
    assert outcome.status == 1
    assert (
        f'"nobody" not found in namespace {namespace}; `certwright get {words[1]}s -A` lists' in outcome.err
    )


def test_status_finds_the_issuer_of_the_other_kind(cli: Cli, namespace: str) -> None:
    wide = SELF_SIGNED.replace("kind: Issuer", "kind: ClusterIssuer").replace("selfsigned", namespace)
    manifest = wide + CERTIFICATE.replace("{name: selfsigned}", f"{{name: {namespace}}}")
    assert cli("apply", "-f", "-", "-n", namespace, stdin=manifest).status == 0
    cli("wait", "certificate", "web", "--for=condition=Issuing", "-n", namespace, *PATIENT)
    story = cli("status", "certificate", "web", "-n", namespace)
    assert "What to do: a ClusterIssuer of that name exists" in story.out
