"""Columns of text, times and counts in words, and text of others on a terminal."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from certwright.cli import errors, format
from certwright.cli.commands.get import with_dates
from certwright.cli.format import ServerTable, aligned, cell_text, lines_of, table
from certwright.diagnosis import words

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


def test_a_cell_forges_no_row_and_commands_no_terminal() -> None:
    assert lines_of([("a\nforged", "x"), ("\x1b[31mred\r", "\x9b0m")]) == [
        r"a\nforged             x",
        r"\u001b[31mred\u000d   \u009b0m",
    ]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (3599, "59m"),
        (3 * 3600 + 60, "3h1m"),
        (26 * 3600, "26h"),
        (3 * 86400, "3d"),
        (3 * 86400 + 7200, "3d2h"),
        (100 * 86400, "100d"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (20 * 365 * 86400, "20y"),
    ],
)
def test_ages_read_as_kubectls(seconds: int, text: str) -> None:
    assert words.age(NOW - timedelta(seconds=seconds), NOW) == text


def test_an_unknown_age_is_said_to_be_unknown() -> None:
    assert words.age(None, NOW) == "<unknown>"


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        (timedelta(0), "now"),
        (timedelta(seconds=1), "in 1 second"),
        (timedelta(minutes=90), "in 90 minutes"),
        (timedelta(hours=1), "in 1 hour"),
        (timedelta(days=-2), "2 days ago"),
        (timedelta(days=59, hours=23), "in 60 days"),
        (timedelta(days=3650), "in 10 years"),
        (timedelta(days=400), "in 400 days"),
    ],
)
def test_distances_in_time_are_told_in_one_unit(delta: timedelta, text: str) -> None:
    assert words.from_now(NOW + delta, NOW) == text


def test_times_of_the_api_are_read_and_others_are_not() -> None:
    assert words.parse_time("2026-01-01T00:00:00Z") == NOW
    assert words.parse_time("yesterday") is None
    assert words.parse_time(None) is None


_CLI = Path(format.__file__).parent
# Only constants, numbers and own styles; or the exact content that was asked for.
_EXACT = r"write_yaml|\.pem|_output\.render|_coloured|_log_line|json_line|report_error|\\r"
_CONSTANT = {
    "about.py",
    "backup.py",
    "bulk.py",
    "crds.py",
    "daemon.py",
    "encryption.py",
    "errors.py",
}
_EXACT += r"|visible\(|get_help\(\)"
# Lines of a table, and one with a colour: made visible before.
_EXACT += r"|click\.echo\(line\)$|click\.style\("

HOSTILE = "a\x1b[31m\x9b0m\u202eb\r\x07"
SHOWN = r"a\u001b[31m\u009b0m\u202eb\u000d\u0007"


def test_a_terminal_obeys_nothing_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    format.echo(HOSTILE)
    format.echo_lines([f"{HOSTILE}\nforged"])
    errors.report_error(HOSTILE)
    errors.report_warning(HOSTILE)
    format.print_content({"name": HOSTILE}, "json")
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [SHOWN, rf"{SHOWN}\nforged"]
    assert err.splitlines() == [f"error: {SHOWN}", f"warning: {SHOWN}"]
    document = out.partition("\n{")[2]
    assert document.isascii()
    assert json.loads("{" + document) == {"name": HOSTILE}


def test_commands_print_text_through_echo() -> None:
    wrong = [
        f"{path.name}: {line.strip()}"
        for path in _CLI.rglob("*.py")
        if path.name not in _CONSTANT
        for line in path.read_text().splitlines()
        if "click.echo(" in line and not re.search(_EXACT, line)
    ]
    assert wrong == []


TITLES = ("NAME", "READY", "MESSAGE")
ROWS = [("web", "True", "It is valid until the end of all days, and longer still"), ("api", "False", "no")]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _on_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> list[str]:
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", _Terminal())
        patched.setenv("COLUMNS", str(columns))
        return table(TITLES, ROWS)[0]


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = _on_a_terminal(monkeypatch, 50)
    assert max(map(len, lines)) <= 50
    assert lines[1:3] == [
        "web    True    It is valid until the end of all",
        "               days, and longer still",
    ]
    assert len(_on_a_terminal(monkeypatch, 200)) == 3
    wide = [("certificate-with-a-long-name", "issuer-with-a-long-name", "True")]
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout", _Terminal())
    (line,) = table(("NAME", "ISSUER", "READY"), wide, headers=False)[0]
    assert line == "certificate-with-a-long…   issue…   True"
    dated = [("web", "ClusterIssuer/letsencrypt", "2027-02-26 11:48 UTC", "2027-01-26T11:48:27Z", "-")]
    (line,) = table(("NAME", "ISSUER", "NOT AFTER", "RENEWS AT", "SERVED AT"), dated, headers=False)[0]
    assert line == "web   Clust…   2027-02-…   2027-01-…   -"
    monkeypatch.setenv("COLUMNS", "50")
    (line,) = table(("NAME", "ISSUER", "NOT AFTER", "RENEWS AT", "SERVED AT"), dated, headers=False)[0]
    assert line == "web   ClusterIssuer…   2027-02-26   2027-01-26   -"


def test_states_have_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[32mTrue" in _on_a_terminal(monkeypatch, 200)[1]
    assert "\x1b[31mFalse" in _on_a_terminal(monkeypatch, 200)[2]
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patched:
            patched.setenv(name, value)
            assert "\x1b" not in "".join(_on_a_terminal(monkeypatch, 200))
    assert "\x1b" not in "".join(table(TITLES, ROWS)[0])
