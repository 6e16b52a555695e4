"""DNS plug-ins in a folder of their own, as pip installs them beside certwright."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from textwrap import dedent

EXAMPLE = Path(__file__).parents[3] / "examples" / "dns-plugin"


def install(folder: Path, package: Path) -> None:
    """Build a package with its backend, as pip does, and unpack the wheel."""
    with tempfile.TemporaryDirectory() as built:
        build = f"from flit_core.buildapi import build_wheel; build_wheel({built!r})"
        subprocess.run([sys.executable, "-c", build], cwd=package, check=True, capture_output=True)
        (wheel,) = Path(built).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(folder)


def write_plugins(folder: Path, **sources: str) -> None:
    """A package for each plug-in: its name, and the source of a module with a class `Plugin`."""
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(dedent(source))
        info = folder / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[certwright.dns01]\n{name} = {name}:Plugin\n")
