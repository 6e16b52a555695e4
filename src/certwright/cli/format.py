"""Output: times, counts, references and tables as text; objects as JSON or YAML."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from certwright.cli import lazy
from certwright.cli.errors import is_coloured
from certwright.kube.api.kinds import AnyKind
from certwright.kube.util.encoding import visible


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text for people. What objects, files and servers contain is printed through this: a terminal
    obeys no control character in it."""
    click.echo(visible(str(text)), err=err, nl=nl)


def echo_lines(lines: Iterable[str]) -> None:
    """Print each text in one line: a line break in a field must not forge one."""
    for line in lines:
        echo(line.replace("\n", "\\n"))


class StatusView(msgspec.Struct, frozen=True):
    """The status of an object: as lines of text, and as one JSON object."""

    lines: Sequence[str]
    content: dict[str, Any]


def print_content(content: Any, form: str) -> None:
    """Print a value as `json` or `yaml`; times are RFC 3339."""
    plain = msgspec.to_builtins(content)
    if form == "json":
        echo(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
    else:
        click.echo(lazy.yaml_writer.write_yaml(plain), nl=False)


def reference(kind: AnyKind, name: str) -> str:
    """`certificate.cert-manager.io/web`, `secret/web-tls`."""
    return f"{kind.singular}.{kind.group}/{name}" if kind.group else f"{kind.singular}/{name}"


_GAP = "   "
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""The Accept header for a Table (Kubernetes API concepts, "Receiving resources as Tables")."""


# Columns of a terminal that a column shrinks to at most, and the last, whose text is wrapped.
_NARROWEST: Final = 6
_NARROWEST_LAST: Final = 24
_NAMES: Final = ("NAME", "NAMESPACE")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_DAY: Final = len("2026-11-28")
_FEW_DAYS: Final = 7
_STATES: Final = ("READY", "STATE", "DELIVERED", "DEPLOYED", "APPROVED", "TYPE", "DAYS LEFT")
"""Titles of the columns with states, which have colours."""
_COLOURS: Final = {
    **dict.fromkeys(("True", "yes", "valid", "ready"), "green"),
    **dict.fromkeys(("Unknown", "pending", "processing", "Warning"), "yellow"),
    **dict.fromkeys(("False", "NO", "invalid", "errored", "expired", "EXPIRED"), "red"),
}


def aligned(rows: Iterable[Sequence[str]], *, at_least: Sequence[int] = ()) -> tuple[list[str], list[int]]:
    """The rows as lines, each column as wide as its widest cell, and those widths.

    `at_least`: the column widths of earlier lines, for alignment with them.
    """
    # One line each: a line break in a field must not forge a row.
    cells = [[visible(text).replace("\n", "\\n") for text in row] for row in rows]
    if not cells:
        return [], list(at_least)
    widths = _widths(cells, at_least)
    return [_line(row, widths) for row in cells], widths


def lines_of(rows: Iterable[Sequence[str]]) -> list[str]:
    """The rows as aligned lines."""
    return aligned(rows)[0]


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    headers: bool = True,
    at_least: Sequence[int] = (),
    indent: int = 0,
    colours: bool = True,
) -> tuple[list[str], list[int]]:
    """As `aligned`, with the titles as first row, but on a terminal as wide as that and with colours: times
    are cut to their day, long cells are cut (`…`), and the text of the last column is wrapped. `indent`: of
    the lines, in columns; `colours`: whether they are printed by `print_lines`."""
    cells = [[visible(text).replace("\n", "\\n") for text in row] for row in rows]
    first = [list(titles)] if headers else []
    if not first and not cells:
        return [], list(at_least)
    widths = _widths(first + cells, at_least)
    room = shutil.get_terminal_size().columns - indent
    if sys.stdout is not None and sys.stdout.isatty() and _excess(widths, room) > 0:
        cells = [[text[:_DAY] if _MOMENT.fullmatch(text) else text for text in row] for row in cells]
        widths = _fitted(_widths(first + cells, at_least), room, [title in _NAMES for title in titles])
    states = [title in _STATES for title in titles] if colours and is_coloured() else []
    lines = [line for row in first for line in _wrapped(row, widths, [])]
    return lines + [line for row in cells for line in _wrapped(row, widths, states)], widths


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, headers: bool = True) -> None:
    """Print a `table`."""
    print_lines(table(titles, rows, headers=headers)[0])


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of a `table`, whose colours stay."""
    for line in lines:
        click.echo(line)


def echo_coloured(line: str, colour: str) -> None:
    """As `echo_lines` of one line, in that colour where there are colours."""
    text = visible(line).replace("\n", "\\n")
    click.echo(click.style(text, fg=colour) if is_coloured() else text)


def _widths(cells: Sequence[Sequence[str]], at_least: Sequence[int]) -> list[int]:
    least = [*at_least, *[0] * len(cells[0])]
    return [max(least[i], *(len(row[i]) for row in cells)) for i in range(len(cells[0]))]


def _excess(widths: Sequence[int], room: int) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1) - room


def _fitted(widths: Sequence[int], room: int, are_names: Sequence[bool]) -> list[int]:
    """The widths that fit into the room. The last column, which is wrapped, shrinks first, then other columns
    wider than a day, then names, then all."""
    fitted = list(widths)
    excess = _excess(widths, room)
    last = len(widths) - 1
    if excess > 0 and fitted[last] > _NARROWEST_LAST:
        fitted[last] = max(_NARROWEST_LAST, fitted[last] - excess)
        excess -= widths[last] - fitted[last]
    long = [i for i in range(last) if widths[i] > _DAY]
    others = [i for i in long if not are_names[i]]
    for columns, least in ((others, _NARROWEST), (long, _DAY), (range(last), _NARROWEST)):
        while excess > 0 and (widest := max((fitted[i] for i in columns), default=0)) > least:
            # Of several the rightmost.
            place = max(i for i in columns if fitted[i] == widest)
            fitted[place] -= 1
            excess -= 1
    return fitted


def _wrapped(row: Sequence[str], widths: Sequence[int], states: Sequence[bool]) -> list[str]:
    """The lines of one row of a table."""
    cut = [
        text if len(text) <= width else f"{text[: width - 1]}…"
        for text, width in zip(row, widths, strict=True)
    ]
    last = [row[-1]]
    if len(row[-1]) > widths[-1]:
        last = textwrap.wrap(row[-1], widths[-1], break_on_hyphens=False)
    head = [text.ljust(width) for text, width in zip(cut, widths, strict=True)][:-1]
    for i, is_state in enumerate(states[: len(head)]):
        colour = _colour(row[i]) if is_state else None
        head[i] = click.style(head[i], fg=colour) if colour else head[i]
    if states and states[-1] and (colour := _colour(row[-1])):
        last = [click.style(text, fg=colour) for text in last]
    before = "".join(f"{text}{_GAP}" for text in head)
    room = " " * sum(width + len(_GAP) for width in widths[:-1])
    return [f"{before}{last[0]}".rstrip(), *(f"{room}{text}".rstrip() for text in last[1:])]


def _colour(text: str) -> str | None:
    if text.isdecimal():
        return "yellow" if int(text) <= _FEW_DAYS else None
    return _COLOURS.get(text)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


class ServerTable:
    """A Table of the server, with its display options."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._columns: list[dict[str, Any]] = content.get("columnDefinitions") or []
        self._rows: list[dict[str, Any]] = content.get("rows") or []

    def header(self, *, wide: bool, namespaces: bool) -> list[str]:
        """The names of the visible columns: columns of priority 0, in a wide table all columns, without
        `hidden` columns, which `table_columns` sets."""
        names = [str(self._columns[i].get("name", "")).upper() for i in self._shown(wide=wide)]
        return ["NAMESPACE", *names] if namespaces else names

    def rows(self, *, wide: bool, namespaces: bool, prefix: str = "") -> list[list[str]]:
        """The visible cells as text. `prefix` precedes the name (`certificate.cert-manager.io/`)."""
        texts = []
        for row in self._rows:
            metadata = (row.get("object") or {}).get("metadata") or {}
            cells = [str(metadata.get("namespace", ""))] if namespaces else []
            for i in self._shown(wide=wide):
                is_name = self._columns[i].get("format") == "name" or i == 0
                values = row.get("cells") or []
                text = cell_text(values[i] if i < len(values) else None)
                cells.append(prefix + text if is_name else text)
            texts.append(cells)
        return texts

    def _shown(self, *, wide: bool) -> list[int]:
        return [
            i
            for i, column in enumerate(self._columns)
            if not column.get("hidden") and (wide or not column.get("priority"))
        ]


def cell_text(value: Any) -> str:
    """A cell on one line, as in kubectl."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(cell_text(item) for item in value)
    return " ".join(str(value).split()) if isinstance(value, str) else str(value)
