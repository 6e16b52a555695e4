"""Keys that are made once, and a real openssl."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certwright.pki.keys import KeyPlan, PrivateKey, generate
from support.real import require

NOW = datetime(2026, 1, 1, 12, 30, 15, 999_999, tzinfo=UTC)
PLANS = ["RSA 2048", "RSA 3072", "ECDSA 256", "ECDSA 384", "ECDSA 521", "Ed25519"]

Openssl = Callable[..., str]


@pytest.fixture(scope="session")
def keys() -> Callable[[str], PrivateKey]:
    """A private key of the kind `RSA 2048`, the same for every test of the session."""
    made: dict[str, PrivateKey] = {}

    def key(plan: str) -> PrivateKey:
        if plan not in made:
            algorithm, _, size = plan.partition(" ")
            made[plan] = generate(KeyPlan.of(algorithm, int(size or 0)))
        return made[plan]

    return key


@pytest.fixture(params=PLANS)
def key(request: pytest.FixtureRequest, keys: Callable[[str], PrivateKey]) -> PrivateKey:
    """A private key of each kind."""
    return keys(request.param)


@pytest.fixture
def openssl(tmp_path: Path) -> Openssl:
    """Run openssl on files given by name and content; the answer is what it printed."""
    program = require("openssl")

    def run(*arguments: str, check: bool = True, **files: bytes) -> str:
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
        done = subprocess.run(
            [program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def now() -> datetime:
    """A moment with a fraction of a second."""
    return NOW
