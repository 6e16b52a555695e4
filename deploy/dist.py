"""Builds what is published, into dist/: wheel, source archive and one executable file. `make dist`.

The same commit gives the same bytes: each time in the archives is that of the commit. The executable contains
the pinned requirements for each supported Python on Linux with glibc, which makes it 100 MB large.
It unpacks itself below ~/.cache/pex (or PEX_ROOT) at its first start.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flit_core import buildapi
from packaging.markers import default_environment
from packaging.tags import compatible_tags, cpython_tags

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ((3, 11), (3, 12), (3, 13))
GLIBC = range(28, 16, -1)
"""Minor versions of glibc 2 whose wheels are used: 2.28 is that of Debian 10 and of RHEL 8."""
EXECUTABLE = "certwright"


def main() -> None:
    """Build into the directory that is named, `dist` by default."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    os.environ["SOURCE_DATE_EPOCH"] = os.environ.get("SOURCE_DATE_EPOCH") or _time_of_commit()
    wheel = out / buildapi.build_wheel(str(out))
    print(wheel)
    print(out / buildapi.build_sdist(str(out)))
    _build_executable(wheel, out / EXECUTABLE)


def _time_of_commit() -> str:
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], capture_output=True, text=True, check=True)
    return shown.stdout.strip()


def _build_executable(wheel: Path, target: Path) -> None:
    """Resolve the pinned requirements and the wheel for each Python, and zip them. Nothing is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        pinned = Path("requirements/runtime.lock").read_text()
        requirements.write_text(f"{pinned}\n{wheel} --hash=sha256:{digest}\n")
        platforms = [f"--complete-platform={path}" for path in _platforms(Path(folder))]
        command = [sys.executable, "-m", "pex", "--requirement", str(requirements), *platforms, "--no-build"]
        command += ["--python-shebang", "/usr/bin/env python3", "--console-script", "certwright"]
        subprocess.run([*command, "--output", str(target)], check=True)


def _platforms(folder: Path) -> Iterator[Path]:
    """A file for each Python that the executable starts with: which wheels and markers fit."""
    machine = platform.machine()
    names = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC]
    names += [f"manylinux2014_{machine}", f"linux_{machine}"]
    for version in PYTHONS:
        short = f"{version[0]}.{version[1]}"
        tags = [
            *cpython_tags(version, platforms=names),
            *compatible_tags(version, f"cp{version[0]}{version[1]}", names),
        ]
        markers = default_environment() | {
            "python_version": short,
            "python_full_version": f"{short}.0",
            "implementation_version": f"{short}.0",
        }
        path = folder / f"{short}.json"
        path.write_text(json.dumps({"marker_environment": markers, "compatible_tags": list(map(str, tags))}))
        yield path


if __name__ == "__main__":
    main()
