"""Other people's Python clients work against our server as they do against Kubernetes.

Each is driven by a script of its own in `clients/`, by the interpreter of an environment that `make clients`
makes: what they need must not be importable where certwright runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.daemon import Daemon, running_daemon
from support.programs import environment_of

_SCRIPTS = Path(__file__).parent / "clients"
_CLIENTS = sorted(path.stem.removeprefix("drive_") for path in _SCRIPTS.glob("drive_*.py"))


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of the environment of the clients."""
    return str(environment_of("clients") / "bin" / "python")


@pytest.fixture(scope="module")
def daemon(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One server for all clients."""
    with running_daemon(tmp_path_factory.mktemp("clients")) as process:
        yield process


@pytest.mark.parametrize("client", _CLIENTS)
def test_a_python_client_finds_what_it_expects(daemon: Daemon, python: str, client: str) -> None:
    done = daemon.run(python, str(_SCRIPTS / f"drive_{client}.py"), f"of-{client}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done: " in done.stdout
