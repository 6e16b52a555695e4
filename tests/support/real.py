"""What not every machine has: it is used where it is installed, and demanded where CI says so."""

from __future__ import annotations

import os
import shutil
import socket
from importlib.util import find_spec
from typing import NoReturn

import pytest

MISSING = "missing: "
"""With which the reason of a skipped test begins."""


def is_demanded() -> bool:
    """Whether the environment demands what tests need, as in CI."""
    return os.environ.get("CERTWRIGHT_REQUIRE_REAL") == "1"


def missing(reason: str) -> NoReturn:
    """Skip the test with that reason; with CERTWRIGHT_REQUIRE_REAL=1 it fails instead, so that CI cannot pass
    by leaving things out."""
    if is_demanded():
        pytest.fail(f"{reason} (CERTWRIGHT_REQUIRE_REAL=1 demands it)")
    pytest.skip(MISSING + reason)


def require(program: str, *, debian: str = "") -> str:
    """The path of `program`, of the `debian` package of another name; servers are in /usr/sbin. Without it
    see `missing`."""
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if path is None:
        missing(f"{program} is not installed here" + (f" (Debian: {debian})" if debian else ""))
    return path


def require_package(name: str) -> None:
    """Without that Python package see `missing`."""
    if find_spec(name) is None:
        missing(f"the Python package {name} is not installed here")


def has_ipv6() -> bool:
    """Whether this machine has ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
