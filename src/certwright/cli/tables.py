"""Text tables: the server's Table representation, and our own tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from certwright.kube.util.encoding import visible

_GAP = "   "
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""The Accept header for a Table (Kubernetes API concepts, "Receiving resources as Tables")."""


def aligned(rows: Iterable[Sequence[str]], *, at_least: Sequence[int] = ()) -> tuple[list[str], list[int]]:
    """The rows as lines, each column as wide as its widest cell, and those widths.

    `at_least` are the column widths of earlier lines, so that later ones align with them.
    """
    # One line each: a line break in a field must not forge a row.
    cells = [[visible(text).replace("\n", "\\n") for text in row] for row in rows]
    if not cells:
        return [], list(at_least)
    least = [*at_least, *[0] * len(cells[0])]
    widths = [max(least[i], *(len(row[i]) for row in cells)) for i in range(len(cells[0]))]
    return [_line(row, widths) for row in cells], widths


def lines_of(rows: Iterable[Sequence[str]]) -> list[str]:
    """The rows as aligned lines."""
    return aligned(rows)[0]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


class ServerTable:
    """A Table of the server, with its display options."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._columns: list[dict[str, Any]] = content.get("columnDefinitions") or []
        self._rows: list[dict[str, Any]] = content.get("rows") or []

    @property
    def empty(self) -> bool:
        """Whether there are no rows."""
        return not self._rows

    def header(self, *, wide: bool, namespaces: bool) -> list[str]:
        """The names of the visible columns. Columns of priority 0 always are, others only in a wide table;
        those with `hidden`, which `table_columns` sets, never are."""
        names = [str(self._columns[i].get("name", "")).upper() for i in self._shown(wide=wide)]
        return ["NAMESPACE", *names] if namespaces else names

    def rows(self, *, wide: bool, namespaces: bool, prefix: str = "") -> list[list[str]]:
        """The visible cells as text. `prefix` precedes the name (`certificate.cert-manager.io/`)."""
        shown = self._shown(wide=wide)
        return [self._row(row, shown, namespaces=namespaces, prefix=prefix) for row in self._rows]

    def _shown(self, *, wide: bool) -> list[int]:
        return [
            i
            for i, column in enumerate(self._columns)
            if not column.get("hidden") and (wide or not column.get("priority"))
        ]

    def _row(self, row: Mapping[str, Any], shown: list[int], *, namespaces: bool, prefix: str) -> list[str]:
        cells = row.get("cells") or []
        texts = [self._cell(cells, i, prefix) for i in shown]
        if not namespaces:
            return texts
        metadata = (row.get("object") or {}).get("metadata") or {}
        return [str(metadata.get("namespace", "")), *texts]

    def _cell(self, cells: Sequence[Any], i: int, prefix: str) -> str:
        text = cell_text(cells[i] if i < len(cells) else None)
        is_name = self._columns[i].get("format") == "name" or i == 0
        return prefix + text if is_name else text


def cell_text(value: Any) -> str:
    """One cell on one line, as in kubectl."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(cell_text(item) for item in value)
    return " ".join(str(value).split()) if isinstance(value, str) else str(value)
