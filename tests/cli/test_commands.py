"""The commands that work with objects, against a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from certwright.cli.bulk import SendingOrder, each_in_order
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from cli.calls import EXAMPLES, PATIENT, Cli, Process
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
            r"document 3, line 14: Certificate web: spec\.dnsName: unknown field; did you mean `dnsNames`\?",
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


@pytest.mark.parametrize(
    ("where", "metadata", "sentence"),
    [
        pytest.param("", "name: no", "metadata.name: false is not text (YAML reads n, no", id="a truth"),
        pytest.param("nowhere", "name: c", 'namespaces "nowhere" not found', id="no such namespace"),
        pytest.param("", "name: c, namespace: default", "is `default`, but --namespace says `", id="another"),
    ],
)
def test_a_document_that_cannot_be_applied_there_is_refused(
    cli: Cli, namespace: str, where: str, metadata: str, sentence: str
) -> None:
    manifest = CONFIG_MAP.replace("name: c", metadata)
    outcome = cli("apply", "-f", "-", "-n", where or namespace, stdin=manifest)
    assert (outcome.status, sentence in outcome.err) == (1, True), outcome.err


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
    assert gone.err.startswith(
        f'error: certificates.cert-manager.io "web" not found in namespace {namespace}; '
    )


def test_a_name_that_is_not_found_is_answered_with_the_likely_one(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    manifest = SELF_SIGNED + CERTIFICATE.replace("name: web,", "name: printer,")
    assert cli("apply", "-f", "-", *here, stdin=manifest).status == 0
    for command in (("get", "cert"), ("status",), ("renew",), ("delete", "cert"), ("describe", "cert")):
        assert "did you mean `printer`?" in cli(*command, "pirnter", *here).err, command
    waited = cli("wait", "cert/pirnter", "--for=condition=Ready", *here)
    assert "did you mean `printer`?" in waited.err
    assert f"it exists in another one: `-n {namespace}`" in cli("status", "printer").err
    none = cli("get", "cert", "anything", *here).err
    assert none.endswith("`certwright get certificates -A` lists all there are\n"), none
    assert cli("wait", "cert/printer", "--for=condition=Ready", *PATIENT, *here).status == 0
    assert "belongs to the certificate" in cli("inspect", "printer", *here).out


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


def test_options_may_precede_the_command(cli: Cli, namespace: str, daemon: Path) -> None:
    made = cli("-n", namespace, "create", "ca", "office", "--dry-run")
    assert f"namespace: {namespace}" in made.out, made.err
    cli("apply", "-f", "-", "-n", namespace, stdin=CONFIG_MAP)
    here = ("--kubeconfig", str(daemon), f"--namespace={namespace}")
    assert cli(*here, "get", "cm/c", "-o", "name").out == "configmap/c\n"
    assert cli("-A", "get", "cm", "-o", "name").out.count("configmap/c\n") >= 1


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ("get certificates", 0, "no certificates in namespace NS (-A searches all)"),
        ("get certificats", 1, 'error: the server has no kind "certificats"; did you mean "certificates"?'),
        (
            "wait shop --for=delete",
            1,
            '"shop"; if that is a name, write its kind first, e.g. certificate/shop',
        ),
        ("renew --all", 1, "error: there is no such certificate in namespace NS"),
    ],
)
def test_nothing_found_is_said_on_standard_error(
    cli: Cli, namespace: str, words: str, status: int, sentence: str
) -> None:
    outcome = cli(*words.split(), "-n", namespace)
    assert (outcome.status, outcome.out) == (status, "")
    assert outcome.err.endswith(sentence.replace("NS", namespace) + "\n")


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


AUTHORITY = "certificate-authority-data: "


@pytest.mark.parametrize(
    ("pattern", "replacement", "sentences"),
    [
        pytest.param(
            r"token: .*",
            "token: wrong",
            (
                "of KUBECONFIG (from --kubeconfig) rejected the request: ",
                "use the kubeconfig written at startup",
            ),
            id="a wrong token",
        ),
        pytest.param(
            rf"{AUTHORITY}.*",
            AUTHORITY + base64.b64encode(new_root("another server").pem).decode(),
            (
                "is not trusted: ",
                "if the kubeconfig KUBECONFIG (from --kubeconfig) is that of another server, take the one",
            ),
            id="of another server",
        ),
        pytest.param(
            AUTHORITY,
            f"tls-server-name: pki.example.test\n    {AUTHORITY}",
            ("start the server with --tls-san pki.example.test, or use one of its other names",),
            id="a name that is not in the server's certificate",
        ),
    ],
)
def test_a_kubeconfig_that_does_not_fit_is_told_with_the_fix(
    cli: Cli, daemon: Path, tmp_path: Path, pattern: str, replacement: str, sentences: tuple[str, ...]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(re.sub(pattern, replacement, daemon.read_text()))
    outcome = cli("get", "certificates", "--kubeconfig", str(path))
    assert outcome.status == 1
    for sentence in sentences:
        assert sentence.replace("KUBECONFIG", str(path)) in outcome.err
    assert ("another server" in outcome.err) == ("is not trusted: " in sentences)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("status certificate", "certificates"),
        ("inspect secret", "secrets"),
        ("delete issuer", "issuers"),
        ("renew", "certificates"),
    ],
)
def test_an_object_that_is_not_there_is_told_with_its_namespace(
    cli: Cli, namespace: str, command: str, kind: str
) -> None:
    outcome = cli(*command.split(), "nobody", "-n", namespace)
    sentence = f'"nobody" not found in namespace {namespace}; `certwright get {kind} -A` lists'
    assert (outcome.status, sentence in outcome.err) == (1, True), outcome.err


def test_status_finds_the_issuer_of_the_other_kind(cli: Cli, namespace: str) -> None:
    wide = SELF_SIGNED.replace("kind: Issuer", "kind: ClusterIssuer").replace("selfsigned", namespace)
    manifest = wide + CERTIFICATE.replace("{name: selfsigned}", f"{{name: {namespace}}}")
    assert cli("apply", "-f", "-", "-n", namespace, stdin=manifest).status == 0
    cli("wait", "certificate", "web", "--for=condition=Issuing", "-n", namespace, *PATIENT)
    story = cli("status", "certificate", "web", "-n", namespace)
    assert "What to do: a ClusterIssuer of that name exists" in story.out


# The daemon's own approver has no right to approve for this kind, so that its requests stay undecided.
KIND = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: signets.example.test}
spec:
  group: example.test
  scope: Namespaced
  names: {plural: signets, singular: signet, kind: Signet, listKind: SignetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture
def request_name(cli: Cli, namespace: str) -> str:
    """A request that nobody decides about by himself."""
    assert cli("apply", "-f", "-", stdin=KIND).status == 0
    assert cli("wait", "crd/signets.example.test", "--for=condition=Established", *PATIENT).status == 0
    csr = build_csr(CsrPlan(common_name="mine"), generate(KeyPlan.of("ECDSA")))
    spec = {
        "request": base64.b64encode(csr).decode(),
        "issuerRef": {"name": "s", "kind": "Signet", "group": "example.test"},
    }
    body = {
        "apiVersion": "cert-manager.io/v1",
        "kind": "CertificateRequest",
        "metadata": {"name": "mine"},
        "spec": spec,
    }
    assert cli("apply", "-f", "-", "-n", namespace, stdin=json.dumps(body)).status == 0
    return "mine"


def decisions(cli: Cli, name: str, namespace: str) -> list[dict[str, Any]]:
    """The conditions Approved and Denied."""
    shown = cli("get", "certificaterequest", name, "-n", namespace, "-o", "json")
    conditions = json.loads(shown.out).get("status", {}).get("conditions", [])
    return [condition for condition in conditions if condition["type"] in ("Approved", "Denied")]


def test_a_request_is_approved_once_and_for_all(cli: Cli, namespace: str, request_name: str) -> None:
    here = (request_name, "-n", namespace)
    assert cli("approve", *here).out == f"certificaterequest {namespace}/mine approved\n"
    (condition,) = decisions(cli, request_name, namespace)
    assert (condition["type"], condition["status"]) == ("Approved", "True")
    assert condition["reason"] == "KubectlCertManager"
    assert condition["message"] == 'manually approved by "certwright"'
    again = cli("approve", *here)
    assert (again.status, again.out) == (0, f"certificaterequest {namespace}/mine is approved already\n")
    other = cli("deny", *here)
    assert (other.status, other.out) == (1, "")
    assert other.err == (
        f"error: certificaterequest {namespace}/mine is approved already, which is final; only a new request "
        "can be denied\n"
    )


def test_a_request_is_denied_with_words_of_ones_own(cli: Cli, namespace: str, request_name: str) -> None:
    words = ("--reason", "NotInThisHouse", "--message", "ask for another name")
    denied = cli("deny", request_name, "-n", namespace, *words)
    assert (denied.status, denied.out) == (0, f"certificaterequest {namespace}/mine denied\n")
    (condition,) = decisions(cli, request_name, namespace)
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "Denied",
        "NotInThisHouse",
        "ask for another name",
    )


def test_of_several_requests_each_is_told(cli: Cli, namespace: str, request_name: str) -> None:
    both = cli("approve", "nobody", request_name, "-n", namespace)
    assert both.status == 1
    assert both.out == f"certificaterequest {namespace}/mine approved\n"
    assert both.err == (
        f"error: certificaterequest {namespace}/nobody: certificaterequests.cert-manager.io "
        '"nobody" not found\n'
    )


async def test_results_come_in_order_and_one_that_is_alone_waits_for_all_before() -> None:
    running: set[int] = set()
    at_once: list[int] = []

    async def work(item: int) -> int:
        running.add(item)
        at_once.append(len(running))
        assert item != 70 or running == {70}
        assert item < 70 or max(running) >= 70 > max(done, default=-1) or 70 in done
        for _ in range(item % 7):
            await asyncio.sleep(0)
        running.discard(item)
        done.append(item)
        return -item

    done: list[int] = []
    results = each_in_order(range(150), work, alone=lambda item: item == 70)
    async with aclosing(results):
        pairs = [pair async for pair in results]
    assert pairs == [(item, -item) for item in range(150)]
    assert done != sorted(done)
    assert sorted(done[:70]) == list(range(70))
    assert 32 < max(at_once) <= 64


async def test_an_error_ends_the_others() -> None:
    ended = asyncio.Event()

    async def work(item: int) -> None:
        if item == 3:
            raise OSError("disk")
        if item > 3:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    results = each_in_order(range(50), work, alone=lambda _: False)
    async with aclosing(results):
        assert [await anext(results) for _ in range(3)] == [(item, None) for item in range(3)]
        with pytest.raises(OSError, match="disk"):
            await anext(results)
    assert ended.is_set()


def test_few_objects_namespaces_and_the_second_of_a_name_are_sent_alone() -> None:
    web = {"kind": "ConfigMap", "metadata": {"name": "web"}}
    assert SendingOrder(20).alone(web)
    order = SendingOrder(21)
    assert [order.alone(web), order.alone(web), order.alone({**web, "metadata": {"name": "api"}})] == [
        False,
        True,
        False,
    ]
    assert order.alone({"kind": "Namespace", "metadata": {"name": "shop"}})


def _many(namespace: str) -> str:
    things = f"things.{namespace}.example.com"
    version = "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}"
    group, place = f"{namespace}.example.com", f"namespace: {namespace}"
    documents = [
        f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}",
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, "
        f"metadata: {{name: {things}}}, "
        f"spec: {{group: {group}, scope: Namespaced, names: {{plural: things, kind: Thing}}, "
        f"versions: [{version}]}}}}",
        f"{{apiVersion: {group}/v1, kind: Thing, metadata: {{name: t, {place}}}}}",
    ]
    documents += [
        f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: m-{i}, labels: {{app: m}}, {place}}}, "
        "data: {a: b}}"
        for i in range(30)
    ]
    # One name twice, and one object that cannot be applied.
    documents += [documents[3].replace("a: b", "a: c"), documents[4].replace("m-1", "M-1")]
    return "\n---\n".join(documents)


def test_many_objects_are_applied_in_order_where_it_matters_and_counted(cli: Cli, namespace: str) -> None:
    shop = f"{namespace}x"
    first = cli("apply", "-f", "-", stdin=_many(shop))
    assert first.status == 1
    lines = first.out.splitlines()
    assert lines[:4] == [
        f"namespace/{shop} created",
        f"customresourcedefinition.apiextensions.k8s.io/things.{shop}.example.com created",
        f"thing.{shop}.example.com/t created (namespace {shop})",
        f"configmap/m-0 created (namespace {shop})",
    ]
    assert [line.split()[0] for line in lines[3:33]] == [f"configmap/m-{i}" for i in range(30)]
    assert lines[33] == f"configmap/m-0 configured (namespace {shop})"
    error, summary = first.err.splitlines()
    assert "document 35, line 69: ConfigMap" in error
    assert summary == "33 created, 1 configured, 1 failed"
    again = cli("apply", "-f", "-", stdin=_many(shop)).err.splitlines()
    assert again[1:] == ["32 unchanged, 2 configured, 1 failed"]
    gone = cli("delete", "configmap", "-l", "app=m", "-n", shop)
    assert (gone.status, gone.err) == (0, "30 deleted\n")
    maps = [f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m-{i}}}" for i in range(30)]
    gone = cli("delete", "-f", "-", "--ignore-not-found", "-n", shop, stdin="\n---\n".join(maps))
    assert (gone.status, gone.out, gone.err) == (0, "", "30 not found\n")
    cli("delete", "crd", f"things.{shop}.example.com", "--no-wait")
    cli("delete", "namespace", shop, "--no-wait")


ISSUER = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: own, annotations: {example.com/n: "1"}}
spec: {selfSigned: {}}
"""
Editor = Callable[..., None]


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    """Sets the editor to `sed` commands, one for each time that it is opened; then it changes nothing."""

    def use(*commands: str) -> None:
        for number, command in enumerate(commands):
            (tmp_path / f"{number}.sed").write_text(command)
        script = tmp_path / "editor"
        script.write_text(
            f"#!/bin/sh\nn=$(cat {tmp_path}/n 2>/dev/null || echo 0); echo $((n+1)) > {tmp_path}/n\n"
            f'cp "$1" {tmp_path}/opened; stat -c %a "$1" > {tmp_path}/mode\n'
            f'[ ! -e {tmp_path}/$n.sed ] || sed -i -f {tmp_path}/$n.sed "$1"\n'
        )
        script.chmod(stat.S_IRWXU)
        monkeypatch.setenv("KUBE_EDITOR", str(script))

    return use


def annotation(cli: Cli, namespace: str) -> str:
    path = r"jsonpath={.metadata.annotations.example\.com/n}"
    return cli("get", "issuer", "own", "-n", namespace, "-o", path).out.strip()


def test_what_is_saved_is_written(cli: Cli, namespace: str, editor: Editor, tmp_path: Path) -> None:
    here = ("-n", namespace)
    cli("apply", "-f", "-", *here, stdin=ISSUER)
    editor('s|example.com/n: .*|example.com/n: "2"|')
    assert cli("edit", "issuer", "own", *here).out == "issuer.cert-manager.io/own edited\n"
    assert annotation(cli, namespace) == "2"
    assert "managedFields" not in (tmp_path / "opened").read_text()
    assert (tmp_path / "mode").read_text() == "600\n"
    assert cli("edit", "issuer/own", *here).out == "issuer.cert-manager.io/own not changed\n"


def test_without_a_terminal_no_editor_is_started_that_nobody_chose(
    cli: Cli, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBE_EDITOR", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    result = cli("edit", "issuer", "own", "-n", namespace)
    assert (result.status, "edit needs a terminal" in result.err) == (1, True)


def test_what_others_change_while_the_editor_is_open_stays(
    cli: Cli, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = ("-n", namespace)
    cli("apply", "-f", "-", *here, stdin=ISSUER)
    other = f"{sys.executable} -m certwright apply -n {namespace} -f {tmp_path}/other.yaml"
    (tmp_path / "other.yaml").write_text(ISSUER.replace("annotations: {", "annotations: {other: '1', "))
    script = tmp_path / "editor"
    change = 's|example.com/n: .*|example.com/n: "2"|'
    script.write_text(f"#!/bin/sh\n{other} > {tmp_path}/log\nsed -i '{change}' $1\n")
    script.chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(script))
    assert cli("edit", "issuer", "own", *here).out == "issuer.cert-manager.io/own edited\n"
    assert annotation(cli, namespace) == "2"
    assert (
        cli("get", "issuer", "own", *here, "-o", "jsonpath={.metadata.annotations.other}").out.strip() == "1"
    )


def test_an_editor_that_cannot_be_started_is_an_error_like_any_other(
    cli: Cli, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_EDITOR", "/nonexistent")
    cli("apply", "-f", "-", "-n", namespace, stdin=ISSUER)
    result = cli("edit", "issuer", "own", "-n", namespace)
    assert (result.status, "/nonexistent could not be started" in result.err) == (1, True)


def test_what_is_refused_is_opened_again_with_the_reason(
    cli: Cli, namespace: str, editor: Editor, tmp_path: Path
) -> None:
    here = ("-n", namespace)
    cli("apply", "-f", "-", *here, stdin=ISSUER)
    editor("s|selfSigned:|selfSined:|", "s|selfSined:|selfSigned:|; s|example.com/n: .*|example.com/n: x|")
    assert cli("edit", "issuer/own", *here).status == 0
    assert re.search(r'^# error: .*unknown field "spec.selfSined"', (tmp_path / "opened").read_text(), re.M)
    assert annotation(cli, namespace) == "x"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("s|selfSigned:|selfSined:|", "spec.selfSined"),
        ("s|name: own|name: other|", "cannot be edited; create another object"),
        ("s|^kind:|kind: [|", "the edited object"),
    ],
)
def test_a_refused_text_is_kept_in_a_file(
    cli: Cli, namespace: str, editor: Editor, command: str, reason: str
) -> None:
    here = ("-n", namespace)
    cli("apply", "-f", "-", *here, stdin=ISSUER)
    editor(command)
    outcome = cli("edit", "issuer/own", *here)
    assert outcome.status == 1
    assert reason in outcome.err
    kept = re.search(r"the text is kept in (\S+)", outcome.err)
    assert kept is not None
    path = Path(kept[1])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "spec:" in path.read_text()
    path.unlink()


def test_fields_are_explained(cli: Cli) -> None:
    lines = cli("explain", "certificate.spec.privateKey").out.splitlines()
    assert lines[:3] == ["GROUP:      cert-manager.io", "KIND:       Certificate", "VERSION:    v1"]
    assert {"FIELD: privateKey <Object>", "  size <integer>"} <= set(lines)
    required = cli("explain", "cert.spec").out.splitlines()
    assert "  secretName <string> -required-" in required
    assert "  dnsNames <[]string>" in required
    below = cli("explain", "issuer.spec.acme.solvers", "--recursive").out.splitlines()
    assert "FIELD: solvers <[]Object>" in below
    assert "    cloudflare <Object>" in below
    assert "KIND:       Secret" in cli("explain", "secret").out
    unknown = cli("explain", "certificate.spec.nope")
    assert unknown.status == 1
    assert "certificate.spec has no field nope; fields: additionalOutputFormats," in unknown.err


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


BROKEN_ISSUER = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: selfsigned}
spec: {ca: {secretName: missing}}
"""


def test_wait_says_what_it_waits_for(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    assert cli("apply", "-f", "-", *here, stdin=BROKEN_ISSUER + "---" + CERTIFICATE).status == 0
    waiting = cli("wait", "cert/web", "--for=condition=Ready", "--timeout=3", *here)
    assert waiting.status == 1
    line, error = waiting.err.splitlines()[-2:]
    assert line.startswith("certificate/web: waiting for Issuer selfsigned, which is not ready: "), (
        waiting.err
    )
    assert error.startswith("error: certificate.cert-manager.io/web: not within 3 s: waiting for Issuer"), (
        error
    )
    issuer = cli("wait", "issuer/selfsigned", "--for=condition=Ready", "--timeout=0", *here)
    assert "not within 0 s: Ready is False (ErrGetKeyPair): " in issuer.err
    kept = cli("wait", "cert/web", "--for=delete", "--timeout=0", *here)
    assert "not within 0 s: exists, and nothing has deleted it" in kept.err


def test_wait_refuses_a_condition_that_the_kind_never_has(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    assert cli("apply", "-f", "-", *here, stdin=CERTIFICATE).status == 0
    refused = cli("wait", "cert/web", "--for=condition=Redy", "--timeout=60", *here)
    assert refused.status == 2
    assert "did you mean condition=Ready?" in refused.err
    none = cli("wait", "cm/kube-root-ca.crt", "--for=condition=Ready", "--timeout=60", *here)
    assert "configmaps have no conditions; wait for delete or create" in none.err


def test_many_are_renewed_and_waited_for_together(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    many = "---".join(CERTIFICATE.replace("web", f"web{n}") for n in range(25))
    assert cli("apply", "-f", "-", *here, stdin=many).status == 0
    waiting = cli("wait", "cert", "--all", "--for=condition=Ready", "--timeout=1", *here)
    assert waiting.status == 1
    reasons = [line for line in waiting.err.splitlines() if "not within 1 s: waiting for Issuer" in line]
    assert len(reasons) == 25, waiting.err
    assert cli("apply", "-f", "-", *here, stdin=SELF_SIGNED).status == 0
    ready = cli("wait", "cert", "--all", "--for=condition=Ready", *PATIENT, *here)
    assert (ready.status, ready.out.count("condition met\n")) == (0, 25), ready.err
    renewed = cli("renew", "--all", "--wait", *PATIENT, *here)
    assert (renewed.status, renewed.out.count("Renewing certificate")) == (0, 25)
    assert renewed.out.count(" renewed\n") == 25
    assert renewed.err.startswith("25 renewing\n")


def test_renew_waits_for_the_new_certificate_and_says_why_it_does_not_come(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    assert cli("apply", "-f", "-", *here, stdin=SELF_SIGNED + CERTIFICATE).status == 0
    assert cli("wait", "cert/web", "--for=condition=Ready", *PATIENT, *here).status == 0
    for revision in ("2", "3"):
        renewed = cli("renew", "web", "--wait", *PATIENT, *here)
        assert (renewed.status, renewed.out.splitlines()[1:]) == (
            0,
            ["certificate.cert-manager.io/web renewed"],
        ), renewed
        assert cli("get", "cert/web", "-o", "jsonpath={.status.revision}", *here).out.strip() == revision
    assert cli("delete", "issuer/selfsigned", *here).status == 0
    failed = cli("renew", "web", "gone", "--wait", "--timeout=2", *here)
    assert failed.status == 1
    assert '"gone" not found' in failed.err
    assert "error: certificate.cert-manager.io/web: not within 2 s: ready, valid until " in failed.err
    assert "being re-issued: waiting for Issuer selfsigned, which does not exist" in failed.err


def test_lists_are_printed_for_programs(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    assert cli("apply", "-f", "-", *here, stdin=SELF_SIGNED + CERTIFICATE).status == 0
    assert cli("wait", "cert/web", "--for=condition=Ready", *PATIENT, *here).status == 0
    assert cli("get", "cert", "--no-headers", *here).out.startswith("web ")
    columns = ("-o", "custom-columns=N:.metadata.name", "--no-headers")
    assert cli("get", "cert", *columns, *here).out == "web\n"
    until_so(lambda: json.loads(cli("events", "-o", "json", *here).out)["items"] != [])
    inside = json.loads(cli("inspect", "web-tls", "-o", "json", *here).out)
    assert inside["certificate"]["dnsNames"] == ["web.example.test"]
    assert inside["privateKey"]["belongsToCertificate"] is True
    assert json.loads(cli("version", "-o", "json").out).keys() == {"certwright", "python", "system"}
    soon = cli("expiring", "--no-headers", *here).out
    assert soon.startswith("Certificate "), soon
