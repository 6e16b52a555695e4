"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GENERATED = "Generated from the code by `make docs`."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with these columns; a `|` in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
