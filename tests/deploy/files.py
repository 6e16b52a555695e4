"""What lies below deploy/, for its tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from support.programs import tool

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "certwright"
Json = dict[str, Any]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(text: str) -> list[Json]:
    """The objects of a YAML stream."""
    return [document for document in yaml.load_all(text, _LOADER) if document]


def helm(*words: str) -> str:
    """What Helm prints. Without it the test is skipped."""
    command = [str(tool("helm", made_by="helm")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(*words: str) -> str:
    """The chart, with these further options of `helm template`."""
    where = ("--namespace", "certwright", "--kube-version", "1.34.0")
    return helm("template", "certwright", "deploy/helm/certwright", *where, *words)
