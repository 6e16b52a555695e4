"""Other people's Python clients work against our server as they do against Kubernetes.

Each is driven by a script of its own in `clients/`, by the interpreter of an environment that `make clients`
makes: what they need must not be importable where certwright runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.daemon import Daemon, running_daemon

_ROOT = Path(__file__).parents[2]
_PYTHON = _ROOT / ".venv-clients" / "bin" / "python"
_SCRIPTS = Path(__file__).parent / "clients"
_CLIENTS = sorted(path.stem.removeprefix("drive_") for path in _SCRIPTS.glob("drive_*.py"))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One server for all clients."""
    if not _PYTHON.exists():
        reason = "other people's clients are not installed here: make clients"
        if os.environ.get("CERTWRIGHT_REQUIRE_REAL") == "1":
            pytest.fail(f"{reason}, and CERTWRIGHT_REQUIRE_REAL=1 demands it")
        pytest.skip(reason)
    with running_daemon(tmp_path_factory.mktemp("clients")) as found:
        yield found


@pytest.mark.parametrize("client", _CLIENTS)
def test_a_python_client_finds_what_it_expects(daemon: Daemon, client: str) -> None:
    done = daemon.run(str(_PYTHON), str(_SCRIPTS / f"drive_{client}.py"), f"of-{client}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done: " in done.stdout
