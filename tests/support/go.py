"""Programs in Go, built once and kept in `.tools/bin`."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from support.real import require

_ROOT = Path(__file__).parents[2]
_MODULE = _ROOT / "tests" / "go"
_BIN = Path(os.environ.get("CERTWRIGHT_TOOLS") or _ROOT / ".tools") / "bin"
KUBERNETES = "v1.37.2"
"""The release that `tests/go/go.mod` is on; kubectl is told so, since a library does not know."""
_VERSION_FLAG = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"


def build(package: str, program: str) -> Path:
    """The program made of a package of `tests/go`; Go looks itself whether it must be built again.

    The first build is only made where CERTWRIGHT_REQUIRE_REAL=1 demands it. Where it cannot be made (no Go,
    no network for its modules) the test is skipped with the reason, or fails where that is set.
    """
    go, target = require("go"), _BIN / program
    if not target.exists() and os.environ.get("CERTWRIGHT_REQUIRE_REAL") != "1":
        # The first build takes minutes: not what somebody wants who only typed `make test`.
        pytest.skip(f"tests/go/{package} is not built yet; with CERTWRIGHT_REQUIRE_REAL=1 it is")
    _BIN.mkdir(parents=True, exist_ok=True)
    with (_BIN / f".{program}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [go, "build", "-trimpath", "-ldflags", _VERSION_FLAG, "-o", str(target), f"./{package}"]
        built = subprocess.run(command, cwd=_MODULE, capture_output=True, text=True, check=False)
    if built.returncode:
        last = (built.stderr.strip().splitlines() or ["no reason given"])[-1]
        reason = f"tests/go/{package} cannot be built here: {last}"
        if os.environ.get("CERTWRIGHT_REQUIRE_REAL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return target
