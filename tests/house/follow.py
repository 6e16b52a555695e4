"""Follow a page of docs/ on a copy of the source: write its files, apply its changes, run its test.

A code block that begins with `# PATH` is a new file. One that begins with `--- PATH` changes a file: lines
with `+` are added, those with `-` removed, the others are context that occurs once in the file; `@@`
separates changes of one file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(?:python|diff)\n(?:# |--- )([\w./-]+)\n(.*?)^```$", re.M | re.S)


def follow(page: str, folder: Path) -> str:
    """Follow `docs/PAGE` in `folder`, and return what its test prints. Raises `AssertionError` with the
    output when a step fails."""
    _copy(folder)
    written = []
    for match in _BLOCK.finditer((ROOT / "docs" / page).read_text()):
        path, text = folder / match[1], match[2]
        written.append(match[1])
        if match[0].startswith("```diff"):
            for change in text.split("@@\n"):
                _apply(path, change)
        else:
            assert not path.exists(), f"{page} says that {match[1]} is new"
            path.write_text(f"{text.strip()}\n")
    tests = [path for path in written if path.startswith("tests/")]
    assert len(tests) == 1, "a page has one test"
    sources = [path for path in written if path.startswith("src/")]
    _run(folder, "ruff", "check", "-q", "--ignore=I001", *sources)
    return _run(folder, "pytest", "-n", "0", "-p", "no:cacheprovider", *tests)


def _copy(folder: Path) -> None:
    unneeded = shutil.ignore_patterns("__pycache__", "go", "clients", "e2e", "*.pyc")
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=unneeded)
    shutil.copy(ROOT / "pyproject.toml", folder)


def _apply(path: Path, change: str) -> None:
    lines = change.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text()
    assert text.count(old) == 1, f"{path}: {text.count(old)} times, not once:\n{old}"
    path.write_text(text.replace(old, new))


def _run(folder: Path, module: str, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    ended = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
