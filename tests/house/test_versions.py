"""The table of cert-manager's releases names tests that exist, and all that its API has gained."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "cert-manager-versions.md").read_text()


def test_the_table_of_releases_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (1\.\d+) \|.*\| (\S+) \|$", TABLE, re.M)
    assert {release for release, _ in rows} == {f"1.{minor}" for minor in range(12, 22)}
    for _, named in rows:
        if named == "–":
            continue
        path, _, name = named.strip("`").partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), named


def test_all_that_the_api_has_gained_is_in_the_table() -> None:
    lines = Path(__file__).with_name("since_1_11_5.txt").read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    # A path in the table may be longer or end in `…`.
    named = " ".join(re.findall(r"`([^`]+)`", TABLE.partition("|---|")[2]))
    assert len(names) > 60
    assert [name for name in names if not re.search(rf"(^|[ .-]){re.escape(name)}($|[ .])", named)] == []
