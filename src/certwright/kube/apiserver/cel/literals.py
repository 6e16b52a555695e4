"""Literal checks: errors in CEL expressions that are visible without an evaluation.

Source: Kubernetes documentation, "Common Expression Language in Kubernetes" (since 1.29); cel-go
`cel/validator.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from certwright.kube.apiserver.cel import ast

AcceptsArgument = Callable[[str, object], bool]
"""Whether a function accepts an argument."""

_CHECKED = ("duration", "timestamp", "matches")
_ANY_ITEMS = "format"  # its list of arguments may contain any types


def problems(tree: ast.Tree, holds: AcceptsArgument) -> list[tuple[int, str]]:
    """An error: its offset in the text, and its message."""
    parts = list(tree.parts)
    errors: list[tuple[ast.Part, str]] = [
        (part, f"invalid {name} argument")
        for name in _CHECKED
        for part in _literals(parts, name)
        if not holds(name, part.value)
    ]
    exempt = set(_exempt(parts))
    for part in parts:
        if part.key not in exempt:
            errors += _mixed(tree, part)
    return [(tree.places.get(part.key, 0), text) for part, text in errors]


def _literals(parts: list[ast.Part], function: str) -> Iterator[ast.Constant]:
    for part in parts:
        if isinstance(part, ast.Call) and part.function == function and part.args:
            first = part.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first


def _exempt(parts: list[ast.Part]) -> Iterator[int]:
    for part in parts:
        if isinstance(part, ast.Call) and part.function == _ANY_ITEMS:
            yield from (inner.key for inner in ast.parts(part))


def _mixed(tree: ast.Tree, part: ast.Part) -> list[tuple[ast.Part, str]]:
    """A list or map whose items have different types."""
    if isinstance(part, ast.MakeList):
        return _unlike(tree, part.items)[:1]
    if isinstance(part, ast.MakeMap):
        keys, values = zip(*part.entries, strict=True) if part.entries else ((), ())
        return _unlike(tree, keys) + _unlike(tree, values)
    return []


def _unlike(tree: ast.Tree, items: tuple[ast.Part, ...]) -> list[tuple[ast.Part, str]]:
    types = [tree.type_of(item) for item in items]
    return [
        (item, f"expected type '{shown(types[0])}' but found '{shown(kind)}'")
        for item, kind in zip(items, types, strict=True)
        if kind != types[0]
    ]


def shown(kind: ast.Type) -> str:
    """A type as messages name it: `list(string)`."""
    name = kind.name or kind.kind
    if not kind.parameters:
        return name
    return f"{name}({', '.join(map(shown, kind.parameters))})"
