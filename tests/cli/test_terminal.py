"""Text of objects, files and servers on a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from certwright.cli import errors, format

_CLI = Path(format.__file__).parent
# Only constants, numbers and own styles; or the exact content that was asked for.
_EXACT = r"write_yaml|\.pem|_output\.render|_coloured|_log_line|json_line|report_error|\\r"
_CONSTANT = {"completion.py", "crds.py", "help.py", "version.py", "bulk.py", "backup.py", "restore.py"}
_CONSTANT |= {"encryption.py", "acme_flags.py", "errors.py", "output.py", "daemon.py", "progress.py"}

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
