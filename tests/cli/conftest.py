"""A real daemon for the tests of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from certwright.cli.main import program
from cli.calls import Cli, Outcome, Process, Start, running_server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the program in an empty folder; it is gone when the test ends."""
    started: list[Process] = []

    def run(*words: str) -> Process:
        started.append(Process(*words, cwd=tmp_path))
        return started[-1]

    yield run
    for process in started:
        process.close()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server with controllers, for all tests of a worker; the value is its kubeconfig."""
    with running_server(tmp_path_factory.mktemp("daemon")) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def cli(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Call the program in this process, with the daemon as its server."""
    monkeypatch.setenv("KUBECONFIG", str(daemon))

    def invoke(*words: str, stdin: str = "") -> Outcome:
        result = CliRunner().invoke(program, list(words), input=stdin, prog_name="certwright")
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def namespace(cli: Cli, request: pytest.FixtureRequest) -> str:
    """A namespace for this test alone."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    manifest = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"
    assert cli("apply", "-f", "-", stdin=manifest).status == 0
    return name
