"""No module but the migration reader parses the message or the reason of an object of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import certwright

_SOURCE = Path(certwright.__file__).parent
_READER = _SOURCE / "resources" / "migration.py"
_PACKAGES = ("resources", "controllers", "issuers", "acme", "cli")
_PARSERS = {
    *("search", "match", "fullmatch", "finditer", "findall", "sub"),
    *("partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"),
}
_TEXTS = {"message", "reason"}
# Error messages of the API server and of click, which are not state.
_MAY_PARSE = {"cli/applier.py", "cli/main.py"}


def _is_text(node: ast.expr) -> bool:
    """`x.message`, `x["message"]`, `x.get("reason", "")`, also within `str(…)`."""
    match node:
        case ast.Attribute(attr=name):
            return name in _TEXTS
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name in _TEXTS
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name in _TEXTS
        case ast.Call(func=ast.Name(id="str"), args=[only]):
            return _is_text(only)
    return False


def _parsing(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=args) if name in _PARSERS:
                if any(_is_text(operand) for operand in (owner, *args)):
                    yield node.lineno
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[text]) if _is_text(text):
                yield node.lineno


def test_no_message_is_parsed() -> None:
    violations = [
        f"{path.relative_to(_SOURCE)}:{line}"
        for package in _PACKAGES
        for path in sorted((_SOURCE / package).rglob("*.py"))
        if path != _READER and str(path.relative_to(_SOURCE)) not in _MAY_PARSE
        if re.search("message|reason", text := path.read_text())
        for line in _parsing(ast.parse(text))
    ]
    assert violations == []


def test_the_check_finds_what_it_is_for() -> None:
    for text in (
        'c.message.startswith("x")',
        "p.search(c.reason)",
        '"x" in c["message"]',
        's.get("reason").split()',
    ):
        assert list(_parsing(ast.parse(text))), text
