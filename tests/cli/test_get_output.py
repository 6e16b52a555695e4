"""The forms in which `certwright get` prints objects: dates, templates, columns, order, labels."""

from __future__ import annotations

import re
from typing import Any

import pytest

from certwright.cli.jsonpath_template import columns, template
from certwright.kube.api.kinds import AnyKind
from certwright.kube.client.rest import Client
from cli.calls import PATIENT, Cli

LIST: dict[str, Any] = {
    "items": [
        {"metadata": {"name": "b"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"metadata": {"name": "a", "labels": {"app": "shop"}}, "n": 3},
    ]
}
OBJECTS = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: own}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: late, labels: {app: shop}}
spec: {secretName: late-tls, dnsNames: [late.example.test], duration: 2160h, issuerRef: {name: own}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: soon}
spec: {secretName: soon-tls, dnsNames: [soon.example.test], duration: 48h, issuerRef: {name: own}}
"""


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{.items[*].metadata.name}", "b a"),
        ("items[1].metadata.labels", '{"app":"shop"}'),
        ("name: {.items[0].metadata.name}!", "name: b!"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.n}{"\\n"}{end}.', "b\t\na\t3\n."),
        ('{.items[*].status.conditions[?(@.type=="Ready")].status}', "True"),
        ("{.nothing}", ""),
    ],
)
def test_templates(text: str, rendered: str) -> None:
    assert template(text)(LIST) == rendered


@pytest.mark.parametrize("text", ["{.a", "{end}", "{range .a}", "{.a[}"])
def test_templates_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        template(text)


def test_columns_of_the_user() -> None:
    ready, count = columns('READY:.status.conditions[?(@.type=="Ready")].status,N:n')
    assert [(ready.cell(item), count.cell(item)) for item in LIST["items"]] == [
        ("True", "<none>"),
        ("<none>", "3"),
    ]
    with pytest.raises(ValueError, match="'NAME' is not HEADER:PATH"):
        columns("NAME")


def test_get_shows_dates_and_what_the_user_wants(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    cli("apply", "-f", "-", *here, stdin=OBJECTS)
    cli("wait", "cert", "--all", "--for=condition=Ready", *PATIENT, *here)
    ends = cli("get", "cert", "late", *here, "-o", "jsonpath={.status.notAfter}").out.strip()
    renews = cli("get", "cert", "late", *here, "-o", "jsonpath={.status.renewalTime}").out.strip()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", ends)
    lines = cli("get", "cert", *here, "--sort-by", "{.status.notAfter}", "--show-labels").out.splitlines()
    rows = [re.split(r" {3,}", line) for line in lines]
    assert rows[0] == ["NAME", "READY", "SECRET", "NOT AFTER", "RENEWS AT", "AGE", "LABELS"]
    assert [row[0] for row in rows[1:]] == ["soon", "late"]
    assert (rows[2][3], rows[2][4], rows[2][-1]) == (ends, renews, "app=shop")
    custom = cli("get", "cert", *here, "-o", "custom-columns=NAME:.metadata.name,APP:.metadata.labels.app")
    assert custom.out.splitlines() == ["NAME   APP", "late   shop", "soon   <none>"]
    by_name = cli("get", "cert", *here, "-o", "name", "--sort-by=.status.notAfter").out
    assert by_name.index("/soon") < by_name.index("/late")
    events = [re.split(r" {3,}", line) for line in cli("events", "cert/late", *here).out.splitlines()]
    assert events[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert {row[3] for row in events[1:]} == {"certificate/late"}
    assert (events[1][2], events[-1][1:3]) == ("Issuing", ["Normal", "Issuing"])
    assert "certificate/soon" in cli("events", *here).out
    everywhere = cli("events", "-A").out.splitlines()
    assert everywhere[0].startswith("NAMESPACE")
    assert any(line.startswith(namespace) for line in everywhere)
    assert cli("events", "cert/none", *here).err.startswith("no events about cert/none in namespace ")
    assert "name one object" in cli("events", "cert", *here).err
    # Other kinds, and several names, have no such columns or one header.
    assert "NOT AFTER" not in cli("get", "issuers", *here).out
    assert cli("get", "cert", "late", "soon", *here).out.count("NOT AFTER") == 1


def test_diffs_come_in_the_order_of_the_documents(cli: Cli, namespace: str) -> None:
    names = [f"m{i}" for i in range(25)]
    documents = [f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n" for name in names]
    documents.insert(3, "apiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n")
    outcome = cli("diff", "-f", "-", "-n", namespace, stdin="---\n".join(documents))
    assert re.findall(r"^\+\+\+ merged configmap/(\S+)", outcome.out, re.MULTILINE) == names
    assert (outcome.status, outcome.err.count("\n")) == (2, 1)
    assert 'no kind "Nonsense"' in outcome.err
    empty = cli("diff", "-f", "-", stdin="")
    assert (empty.status, empty.err) == (2, "error: standard input contains no objects\n")


def test_a_write_of_another_while_diff_compares_is_no_difference(
    cli: Cli, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n"
    assert cli("apply", "-f", "-", "-n", namespace, stdin=document).status == 0
    patch, interrupted = Client.patch, list[str]()

    async def interrupt(client: Client, kind: AnyKind, name: str, *words: Any, **options: Any) -> Any:
        if not interrupted:
            interrupted.append(name)
            await patch(client, kind, name, namespace, {"data": {"written": "meanwhile"}})
        return await patch(client, kind, name, *words, **options)

    monkeypatch.setattr(Client, "patch", interrupt)
    outcome = cli("diff", "-f", "-", "-n", namespace, stdin=document)
    assert (outcome.status, outcome.out, interrupted) == (0, "", ["m"])


def test_diff_shows_what_apply_would_change(cli: Cli, namespace: str) -> None:
    here = ("-n", namespace)
    secret = (
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: correct, user: same}\n"
    )
    assert cli("apply", "-f", "-", *here, stdin=OBJECTS + "---\n" + secret).status == 0
    # A status that changes between the two requests of a comparison would be a difference.
    assert cli("wait", "cert", "--all", "--for=condition=Ready", *PATIENT, *here).status == 0
    same = cli("diff", "-f", "-", *here, stdin=OBJECTS + "---\n" + secret)
    assert (same.status, same.out, same.err) == (0, "", "")
    changed = cli("diff", "-f", "-", *here, stdin=OBJECTS.replace("48h", "72h"))
    lines = [line for line in changed.out.splitlines() if line.startswith(("+", "-"))]
    assert (changed.status, lines[2:]) == (1, ["-  duration: 48h", "+  duration: 72h"])
    assert lines[0] == f"--- live certificate.cert-manager.io/soon (namespace {namespace})"
    assert cli("get", "cert", "soon", *here, "-o", "jsonpath={.spec.duration}").out == "48h\n"
    masked = cli("diff", "-f", "-", *here, stdin=secret.replace("correct", "horse"))
    assert masked.status == 1
    assert "+  password: '*** (after)'" in masked.out.replace('"', "'")
    assert "user: ***" in masked.out.replace('"', "").replace("'", "")
    new = cli("diff", "-f", "-", *here, stdin=OBJECTS.replace("name: soon}", "name: new}"))
    assert (new.status, "+  name: new" in new.out.splitlines()) == (1, True)
    bad = cli("diff", "-f", "-", *here, stdin=OBJECTS.replace("48h", "soon"))
    assert (bad.status, bad.out) == (2, "")
    assert "spec.duration" in bad.err
    assert cli("diff", "-f", "-", "--kubeconfig", "/none", stdin=secret).status == 2
