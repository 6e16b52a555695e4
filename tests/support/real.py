"""What not every machine has. Programs that are not Python packages are used where they are, and demanded
where CI says so."""

from __future__ import annotations

import os
import shutil
import socket

import pytest


def require(program: str) -> str:
    """The path of `program`. Without it the test is skipped with that reason; where the environment says
    CERTWRIGHT_REQUIRE_REAL=1 it fails instead, so that CI cannot pass by leaving things out."""
    path = shutil.which(program)
    if path is None:
        reason = f"{program} is not installed here"
        if os.environ.get("CERTWRIGHT_REQUIRE_REAL") == "1":
            pytest.fail(f"{reason}, and CERTWRIGHT_REQUIRE_REAL=1 demands it")
        pytest.skip(reason)
    return path


def has_ipv6() -> bool:
    """Whether this machine has ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
