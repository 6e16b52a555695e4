"""Modules that commands load when they use them, because --help needs none of them.

`lazy.app.start_server(…)` imports `certwright.app` at its first use. Nothing else in the command line imports
late, except the table of commands in `main.py`, and `commands/run.py` its runner.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import difflib as difflib

    from certwright import app as app
    from certwright.app import acme_commands as acme_commands
    from certwright.cli import jsonpath_template as jsonpath_template
    from certwright.kit import logs as logs
    from certwright.kit import tls_scan as tls_scan
    from certwright.kube.util import jsonpath as jsonpath

_MODULES = {
    "access": "certwright.cli.access",
    "api_errors": "certwright.kube.api.errors",
    "app": "certwright.app",
    "certificate": "certwright.resources.certificate",
    "difflib": "difflib",
    "inspect": "certwright.cli.commands.inspect",
    "import_files": "certwright.cli.importing.files",
    "import_objects": "certwright.cli.importing.objects",
    "import_programs": "certwright.cli.importing.programs",
    "inventory": "certwright.diagnosis.inventory",
    "inventory_output": "certwright.cli.inventory_output",
    "jsonpath": "certwright.kube.util.jsonpath",
    "jsonpath_template": "certwright.cli.jsonpath_template",
    "logs": "certwright.kit.logs",
    "options": "certwright.cli.options",
    "outgoing": "certwright.kit.outgoing",
    "acme_commands": "certwright.app.acme_commands",
    "report": "certwright.dashboard.report",
    "resource_args": "certwright.cli.resource_args",
    "solver": "certwright.resources.solver",
    "sources": "certwright.kube.api.manifests",
    "tls_scan": "certwright.kit.tls_scan",
    "trust_stores": "certwright.cli.trust_stores",
    "yaml_writer": "certwright.kube.api.yaml_codec",
}


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(_MODULES[name])
