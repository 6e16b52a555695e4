"""How many processors a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from certwright.kit.processors import usable_processors


def test_without_a_limit_there_are_as_many_as_it_may_run_on(tmp_path: Path) -> None:
    assert usable_processors(tmp_path / "none") == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("told", "limit"), [("50000 100000\n", 0.5), ("25000 50000\n", 0.5)])
def test_the_limit_of_a_container_counts(tmp_path: Path, told: str, limit: float) -> None:
    (tmp_path / "cpu.max").write_text(told)
    assert usable_processors(tmp_path / "cpu.max") == limit


@pytest.mark.parametrize("told", ["max 100000\n", "9900000 1000\n", "", "many few\n", "1 0\n"])
def test_no_limit_or_one_that_says_nothing_changes_nothing(tmp_path: Path, told: str) -> None:
    (tmp_path / "cpu.max").write_text(told)
    assert usable_processors(tmp_path / "cpu.max") == usable_processors(tmp_path / "none")
