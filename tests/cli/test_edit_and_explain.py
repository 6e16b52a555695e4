"""`certwright edit` with scripts as editors, and `certwright explain`, on a real server."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.calls import Cli

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
    assert (result.status, result.err.startswith("error: /nonexistent: Editing failed")) == (1, True)


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
