"""Which modules a process loads for DNS hosts: only those of hosts in use cost memory."""

from __future__ import annotations

import subprocess
import sys

from certwright.controllers.acme.dns_hosts.table import HOSTS

_SCRIPT = """
import sys
from certwright.controllers.acme import solver_factory
print(*(name for name in sys.modules if name.startswith(("certwright.acme.solvers.dns01.hosts.",
    "certwright.controllers.acme.dns_hosts.", "certwright.kit.aws", "xml."))))
"""
_SHARED = {"api", "children", "contract", "session", "solver", "table", "values"}


def test_no_host_is_loaded_before_it_is_used() -> None:
    answer = subprocess.run([sys.executable, "-c", _SCRIPT], check=True, capture_output=True, text=True)
    loaded = {name.rpartition(".")[2] for name in answer.stdout.split()}
    assert loaded <= _SHARED
    assert not loaded & set(HOSTS)
