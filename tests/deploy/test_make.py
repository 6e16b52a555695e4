"""The first `make run` of a newcomer: what it refuses, and an interruption that harms nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.rights import ROOT
from support.real import require
from support.waiting import until_so

PYTHON = Path(sys.base_prefix, "bin", "python3")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    require("make")
    shutil.copyfile(ROOT / "Makefile", tmp_path / "Makefile")
    return tmp_path


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def _make(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *words], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ('PYTHONPATH={here}/without exec {python} "$@"', "apt install python3-venv"),
        ("echo certwright needs Python 3.11 or newer >&2; exit 1", "certwright needs Python 3.11 or newer"),
    ],
)
def test_what_is_missing_is_named(checkout: Path, script: str, sentence: str) -> None:
    (checkout / "without").mkdir()
    (checkout / "without" / "ensurepip.py").write_text("raise ImportError('as in Debian')\n")
    python = _script(checkout / "python", script.format(here=checkout, python=PYTHON))
    done = _make(checkout, ".venv/bin/pip", f"PYTHON={python}")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not [*checkout.glob(".venv*")]


def test_an_interrupted_environment_is_made_again(checkout: Path) -> None:
    slow = (
        f'case "$2" in venv) mkdir "$3"; touch {checkout}/begun; exec sleep 60;; *) exec {PYTHON} "$@";; esac'
    )
    python = _script(checkout / "python", slow)
    # A group of its own, which gets what the terminal sends at Ctrl-C.
    process = subprocess.Popen(
        ["make", ".venv/bin/pip", f"PYTHON={python}"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    until_so((checkout / "begun").exists)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode != 0
    assert "Traceback" not in out
    assert not [*checkout.glob(".venv*")]
    done = _make(checkout, ".venv/bin/pip", f"PYTHON={PYTHON}")
    assert done.returncode == 0, done.stderr
    subprocess.run([checkout / ".venv" / "bin" / "pip", "--version"], check=True, capture_output=True)


def test_clean_keeps_keys_without_a_terminal(checkout: Path) -> None:
    (checkout / "certwright-data").mkdir()
    (checkout / ".venv").mkdir()
    done = _make(checkout, "clean")
    assert "certwright-data is kept" in done.stdout
    assert [(checkout / name).exists() for name in ("certwright-data", ".venv")] == [True, False]
