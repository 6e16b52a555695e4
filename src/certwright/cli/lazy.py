"""Modules that commands load when they use them, because --help needs none of them.

`lazy.app.start_server(…)` imports `certwright.app` at its first use. Nothing else in the command line imports
late, except the table of commands in `main.py`, and `commands/run.py` its runner.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from certwright import app as app
    from certwright.app import revocation as revocation
    from certwright.app import solver_check as solver_check
    from certwright.cli import secret_report as secret_report
    from certwright.cli import sources as sources

_MODULES = {
    "api_errors": "certwright.kube.api.errors",
    "app": "certwright.app",
    "operator_policy": "certwright.resources.operator_policy",
    "outgoing": "certwright.kit.outgoing",
    "revocation": "certwright.app.revocation",
    "secret_report": "certwright.cli.secret_report",
    "solver_check": "certwright.app.solver_check",
    "sources": "certwright.cli.sources",
}


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(_MODULES[name])
