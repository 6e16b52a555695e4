"""Completion of kinds, names and namespaces, as the script of a shell asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from certwright.cli.main import program
from cli.calls import Cli

MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: printer}\n"


def _completed(line: str) -> list[str]:
    environment = {
        "_CERTWRIGHT_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    result = CliRunner().invoke(program, [], env=environment, prog_name="certwright")
    assert result.exit_code in (0, 1)
    return [word.partition(",")[2] for word in result.output.splitlines() if word]


def test_names_kinds_and_namespaces_are_completed(cli: Cli, namespace: str) -> None:
    assert cli("apply", "-f", "-", "-n", namespace, stdin=MANIFEST).status == 0
    here = f"-n {namespace}"
    assert _completed(f"certwright get {here} cm pri") == ["printer"]
    assert _completed(f"certwright {here} get cm/pri") == ["cm/printer"]
    assert "certificates" in _completed(f"certwright get {here} cert")
    assert _completed(f"certwright status -n {namespace[:-1]}") == [namespace]


def test_without_a_server_there_are_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert _completed("certwright get cm pri") == []
    assert _completed("certwright ge") == ["get"]
