"""Modules of Go, for the files that lie in them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support.real import require

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
