"""The table of cert-manager's releases names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_releases_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "cert-manager-versions.md").read_text()
    rows = re.findall(r"^\| (1\.\d+) \|.*\| (\S+) \|$", text, re.M)
    assert {release for release, _ in rows} == {f"1.{minor}" for minor in range(12, 22)}
    for _, named in rows:
        if named == "–":
            continue
        path, _, name = named.strip("`").partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), named
