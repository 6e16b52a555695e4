"""Builds what is published, into dist/: wheel, source archive and one executable file. `make dist`.

The same commit gives the same bytes: each time in the archives is that of the commit. The executable contains
the pinned requirements, those of all extras too, for each supported Python on Linux with glibc: 113 MB, of
which 4 MB are the extras. At its first start it unpacks itself below ~/.cache/pex (or PEX_ROOT)
and makes a virtual environment there: the program starts itself for DNS plug-ins, by `python -m`.
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
from packaging.tags import Tag, compatible_tags, cpython_tags

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ((3, 13), (3, 12), (3, 11))
"""The executable prefers the first that is installed."""
GLIBC = range(28, 16, -1)
"""Minor versions of glibc 2 whose wheels are used: 2.28 is that of Debian 10 and of RHEL 8."""
EXECUTABLE = "certwright"
EXTRAS = ("apprise", "doh", "etcd", "lexicon")
# Without it, pex would try any Python, and explain in 800 lines why its packages do not fit.
FIND_PYTHON = b"""\
if [ "$(uname -sm)" != "Linux MACHINE" ]; then
    echo >&2 "error: this certwright is for Linux on MACHINE; elsewhere, install the wheel with pip or pipx"
    exit 1
fi
for name in NAMES; do
    if DEFAULT_PYTHON="$("${name}" -ISc 'if True:
        import sys
        print(sys.executable)
        sys.exit(sys.version_info[:2] not in PYTHONS)' 2>/dev/null)"; then
        break
    fi
    DEFAULT_PYTHON=""
done
if [ -z "${DEFAULT_PYTHON}" ]; then
    echo >&2 "error: certwright needs Python LISTED in PATH; on Debian and Ubuntu: apt install python3"
    exit 1
fi
"""
"""The part of the start script that chooses the interpreter."""
_BEFORE = b'if [ -f "${DEFAULT_PYTHON}"'


def main() -> None:
    """Build into the directory that is named, `dist` by default."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    os.environ["SOURCE_DATE_EPOCH"] = os.environ.get("SOURCE_DATE_EPOCH") or time_of_commit()
    wheel = out / buildapi.build_wheel(str(out))
    print(wheel)
    print(out / buildapi.build_sdist(str(out)))
    _build_executable(wheel, out / EXECUTABLE)


def time_of_commit() -> str:
    """The time of the last commit, in seconds since 1970."""
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], capture_output=True, text=True, check=True)
    return shown.stdout.strip()


def _build_executable(wheel: Path, target: Path) -> None:
    """Resolve the pinned requirements and the wheel for each Python, and zip them. Nothing is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, "requirements.txt")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        # Not by its path, which would be in the executable. No other wheel has its digest.
        version = wheel.name.split("-")[1]
        requirements.write_text(f"certwright[{','.join(EXTRAS)}]=={version} --hash=sha256:{digest}\n")
        pinned = [f"--requirement=requirements/{name}.lock" for name in ("runtime", *EXTRAS)]
        platforms = [f"--complete-platform={path}" for path in _platforms(Path(folder))]
        command = [sys.executable, "-m", "pex", f"--requirement={requirements}", *pinned, *platforms]
        command += ["--no-build", "--console-script=certwright", "--venv", "--sh-boot", "--include-tools"]
        command += [f"--find-links={wheel.parent}"]
        command += ["--non-hermetic-venv-scripts"]  # plug-ins by PYTHONPATH, as where it is installed by pip
        subprocess.run([*command, "--output", str(target)], check=True)
    built = target.read_bytes()
    if built.count(_BEFORE) != 1:
        sys.exit("the start script of this pex is another one: adapt deploy/dist.py")
    target.write_bytes(built.replace(_BEFORE, _find_python() + _BEFORE))


def _find_python() -> bytes:
    versions = [f"{major}.{minor}" for major, minor in PYTHONS]
    names = " ".join([*(f"python{version}" for version in versions), "python3"])
    listed = ", ".join(versions[:0:-1]) + f" or {versions[0]}"
    texts = {"MACHINE": platform.machine(), "NAMES": names, "PYTHONS": repr(PYTHONS), "LISTED": listed}
    script = FIND_PYTHON
    for mark, text in texts.items():
        script = script.replace(mark.encode(), text.encode())
    return script


def tags_of(version: tuple[int, int]) -> list[Tag]:
    """The tags of wheels that fit this machine with that Python, best first."""
    machine = platform.machine()
    names = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC]
    names += [f"manylinux2014_{machine}", f"linux_{machine}"]
    interpreter = f"cp{version[0]}{version[1]}"
    return [*cpython_tags(version, platforms=names), *compatible_tags(version, interpreter, names)]


def _platforms(folder: Path) -> Iterator[Path]:
    """A file for each Python that the executable starts with: which wheels and markers fit."""
    for version in PYTHONS:
        short = f"{version[0]}.{version[1]}"
        markers = default_environment() | {
            "python_version": short,
            "python_full_version": f"{short}.0",
            "implementation_version": f"{short}.0",
        }
        path = folder / f"{short}.json"
        tags = [str(tag) for tag in tags_of(version)]
        path.write_text(json.dumps({"marker_environment": markers, "compatible_tags": tags}))
        yield path


if __name__ == "__main__":
    main()
