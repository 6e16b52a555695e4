"""Columns of text."""

from __future__ import annotations

from typing import Any

from certwright.cli.commands.get import with_dates
from certwright.cli.format import ServerTable, aligned, cell_text, lines_of

TABLE: dict[str, Any] = {
    "columnDefinitions": [
        {"name": "Name", "format": "name", "priority": 0},
        {"name": "Ready", "priority": 0},
        {"name": "Status", "priority": 1},
    ],
    "rows": [
        {"cells": ["web", "True", "all\nis well"], "object": {"metadata": {"namespace": "shop"}}},
        {"cells": ["api", None, "x"], "object": {"metadata": {"namespace": "default"}}},
    ],
}


def test_columns_stand_under_each_other_without_blanks_at_the_end() -> None:
    assert lines_of([("A", "B"), ("long", "x"), ("y", "")]) == ["A      B", "long   x", "y"]
    assert lines_of([]) == []


def test_rows_that_come_later_keep_the_widths_of_earlier_ones() -> None:
    _, widths = aligned([("NAME", "READY"), ("certificate", "True")])
    lines, _ = aligned([("web", "True")], at_least=widths)
    assert lines == ["web           True"]


def test_a_narrow_table_shows_the_columns_that_matter() -> None:
    table = ServerTable(TABLE)
    assert table.header(wide=False, namespaces=False) == ["NAME", "READY"]
    assert table.rows(wide=False, namespaces=False) == [["web", "True"], ["api", ""]]


def test_a_wide_table_shows_all_columns_and_each_cell_on_one_line() -> None:
    table = ServerTable(TABLE)
    assert table.header(wide=True, namespaces=True) == ["NAMESPACE", "NAME", "READY", "STATUS"]
    assert table.rows(wide=True, namespaces=True, prefix="c/")[0] == ["shop", "c/web", "True", "all is well"]


def test_a_wide_table_shows_the_end_of_a_certificate_once() -> None:
    end, renewal = "2026-04-01T00:00:00Z", "2026-03-01T00:00:00Z"
    columns = [{"name": "Name"}, {"name": "Expiration", "priority": 1}, {"name": "Age"}]
    status = {"notAfter": end, "renewalTime": renewal}
    rows = [{"cells": ["web", end, "2d"], "object": {"status": status}}]
    table = ServerTable(with_dates({"columnDefinitions": columns, "rows": rows}))
    assert table.header(wide=True, namespaces=False) == ["NAME", "NOT AFTER", "RENEWS AT", "AGE"]
    assert table.rows(wide=True, namespaces=False) == [["web", end, renewal, "2d"]]


def test_cells_read_as_kubectls() -> None:
    assert [cell_text(v) for v in (None, True, 3, ["a", 1], 1.5)] == ["", "true", "3", "a,1", "1.5"]


def test_a_table_without_rows_is_empty() -> None:
    assert ServerTable({}).empty


def test_a_cell_forges_no_row_and_commands_no_terminal() -> None:
    assert lines_of([("a\nforged", "x"), ("\x1b[31mred\r", "\x9b0m")]) == [
        r"a\nforged             x",
        r"\u001b[31mred\u000d   \u009b0m",
    ]
