"""docs/security.md is a table of claims: each one names a test that attacks it, and that test exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from certwright.cli import acme_flags
from certwright.cli.flags import Flag, flags_of
from certwright.controllers.certificates.ownership import RESERVED_TYPES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
CLAIMS = [row for row in ROWS if not row.rstrip().endswith("| test |")]
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions_of(path: Path) -> set[str]:
    """The names of the functions in a module."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", CLAIMS, ids=[row.split("|")[1].strip()[:60] for row in CLAIMS])
def test_each_claim_names_a_test_that_exists(row: str) -> None:
    named = _TEST.findall(row.rstrip(" |").rpartition("|")[2])
    assert named, "the last cell names no test"
    for path, name in named:
        assert (ROOT / path).exists(), path
        assert name in functions_of(ROOT / path), f"{path} has no {name}"


def test_the_page_has_its_four_tables() -> None:
    assert len(ROWS) - len(CLAIMS) == 4
    assert len(CLAIMS) > 30


def test_every_flag_that_opens_something_has_a_row() -> None:
    flags = [flag.name for _, flag in flags_of(acme_flags.PolicyFlags) if isinstance(flag, Flag)]
    assert len(flags) == len(set(flags)) > 9
    assert [flag for flag in flags if f"| `{flag}` |" not in PAGE] == []


def test_the_documentation_names_every_type_of_secret_that_is_never_written() -> None:
    page = (ROOT / "docs" / "secrets.md").read_text()
    assert all(f"`{secret_type}`" in page for secret_type in RESERVED_TYPES)
