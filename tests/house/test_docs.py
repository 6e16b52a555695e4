"""The pages of the documentation: reachable from the index, and without a dead link or anchor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
INDEX = ROOT / "docs" / "index.md"
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
    }
)

_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_SCHEME = re.compile(r"[a-z][a-z+.-]*:")
_BLOCK = re.compile(r"^( *)```.*?^\1```", re.S | re.M)


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return _BLOCK.sub("", page.read_text())


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files that a page links to, each with the anchor (empty without one)."""
    for target in _LINK.findall(prose(page)):
        if not _SCHEME.match(target):
            path, _, anchor = unquote(target).partition("#")
            yield ((page.parent / path).resolve() if path else page), anchor


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    counts: dict[str, int] = {}
    result = set(re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text()))
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose(page), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = counts.get(slug, 0)
        counts[slug] = count + 1
        result.add(f"{slug}-{count}" if count else slug)
    return frozenset(result)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_the_page_leads_to_a_file_and_an_anchor(page: Path) -> None:
    dead = [
        f"{target.name}#{anchor}"
        for target, anchor in links(page)
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target))
    ]
    assert not dead


def test_every_page_is_reachable_from_the_index() -> None:
    reached, waiting = {INDEX}, [INDEX]
    while waiting:
        for target, _ in links(waiting.pop()):
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert not [page.relative_to(ROOT).as_posix() for page in PAGES if page not in reached]


def test_the_readme_and_the_index_link_to_each_other() -> None:
    assert INDEX in {target for target, _ in links(ROOT / "README.md")}
    assert ROOT / "README.md" in {target for target, _ in links(INDEX)}


def test_every_page_of_the_docs_is_one_link_away_from_the_index() -> None:
    """A page that only another page knows is not found by a reader who looks for a task."""
    direct = {target for target, _ in links(INDEX)}
    pages = {*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")} - {INDEX}
    ours = {page for page in pages if page.parent.name != "decisions"}
    assert not [page.relative_to(ROOT).as_posix() for page in sorted(ours - direct)]


def test_files_and_functions_that_pages_name_exist() -> None:
    named = re.compile(r"`([a-z0-9_/]+\.py):([A-Za-z_.]+)`")
    found = 0
    for page in ("architecture.md", "configuration.md"):
        for path, function in named.findall((ROOT / "docs" / page).read_text()):
            found += 1
            tree = ast.parse((ROOT / "src" / "certwright" / path).read_text())
            defined = {node.name for node in ast.walk(tree) if isinstance(node, DEFINITIONS)}
            assert {*function.split(".")} <= defined, f"{page}: {path}:{function}"
    assert found > 15
