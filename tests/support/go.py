"""Programs in Go, built once and kept in `.tools/bin`. `make go-clients` builds them before there are tests
that wait for them."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.real import is_demanded, missing, require

GATEWAY_API = "sigs.k8s.io/gateway-api@v1.6.0"


def folder_of(module: str) -> Path:
    """Where a module (`path@version`) lies. Raises `RuntimeError` where it cannot be had."""
    require("go")
    done = subprocess.run(
        ["go", "mod", "download", "-json", module], capture_output=True, text=True, check=False
    )
    document = json.loads(done.stdout or "{}")
    if not document.get("Dir"):
        raise RuntimeError(f"{module} cannot be downloaded: {document.get('Error') or done.stderr}")
    return Path(document["Dir"])


_ROOT = Path(__file__).parents[2]
_MODULE = _ROOT / "tests" / "go"
_BIN = Path(os.environ.get("CERTWRIGHT_TOOLS") or _ROOT / ".tools") / "bin"
KUBERNETES = "v1.37.2"
"""The release that `tests/go/go.mod` is on; kubectl is told so, since a library does not know."""
_VERSION_FLAG = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
_PROGRAMS = {
    "clients": "go-clients",
    "kubectl": "kubectl",
    "httpserver": "httpserver",
    "verifychain": "verify-chain",
}


def build(package: str, program: str) -> Path:
    """The program made of a package of `tests/go`; Go looks itself whether it must be built again.

    The first build is only made where CERTWRIGHT_REQUIRE_REAL=1 demands it. Where it cannot be made (no Go,
    no network for its modules) the test is skipped with the reason, or fails where that is set.
    """
    require("go")
    target = _BIN / program
    if not target.exists() and not is_demanded():
        # The first build takes minutes: not what somebody wants who only typed `make test`.
        pytest.skip(f"tests/go/{package} is not built yet; with CERTWRIGHT_REQUIRE_REAL=1 it is")
    if said := _build(package, target):
        missing(f"tests/go/{package} cannot be built here: {said.splitlines()[-1]}")
    return target


def _build(package: str, target: Path) -> str:
    """What Go says where it fails; empty where the program is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-trimpath", "-ldflags", _VERSION_FLAG, "-o", str(target), f"./{package}"]
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(command, cwd=_MODULE, capture_output=True, text=True, check=False)
    return (built.stderr.strip() or "no reason given") if built.returncode else ""


if __name__ == "__main__":
    for package, name in _PROGRAMS.items():
        print(f"building {name} …", flush=True)
        if failure := _build(package, _BIN / name):
            sys.exit(failure)
