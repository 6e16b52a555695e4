"""docs/add-*.md: followed to the letter on a copy of the source, each leads to something that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from house.follow import ROOT, follow

PAGES = sorted(path.name for path in (ROOT / "docs").glob("add-*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_following_the_page_gives_something_that_passes_its_test(page: str, tmp_path: Path) -> None:
    assert re.search(r"^\d+ passed", follow(page, tmp_path), re.M)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_the_page_names_exists(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    new = set(re.findall(r"^# ([\w./-]+\.py)$", text, re.M))
    named = set(re.findall(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|md|yaml))`", text)) - new
    assert named
    places = (ROOT, ROOT / "src" / "certwright")
    assert not [path for path in named if not any((place / path).exists() for place in places)]
