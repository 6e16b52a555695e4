"""Messages, errors and exit statuses of commands.

click.ClickException
├── click.UsageError    wrong use: exit status 2
├── Failed              one sentence on standard error: exit status 1
└── AlreadyReported     the sentences have been printed one by one: exit status 1
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import IO, Any

import click

from certwright.kube.util.encoding import visible

LogLine = Callable[[int, str], str]
_log_line: LogLine | None = None


def print_as(log_line: LogLine | None) -> None:
    """Print messages, errors and warnings as `log_line` formats them, from a level and a sentence, from now
    on; None: as plain sentences."""
    global _log_line
    _log_line = log_line


def is_coloured(stream: IO[str] | None = None) -> bool:
    """Whether to colour what goes to the stream, by default standard output: a terminal that has colours.

    Source: no-color.org.
    """
    stream = stream or sys.stdout
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class Failed(click.ClickException):
    """The command failed; the text is one sentence for the user."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print `error: ` and the sentence."""
        report_error(self.format_message(), file=file)


class AlreadyReported(click.ClickException):
    """A failure that has been reported already; only the exit status remains."""

    def __init__(self) -> None:
        super().__init__("")

    def show(self, file: IO[Any] | None = None) -> None:
        """Print nothing."""


def report(sentence: str, *, err: bool = False) -> None:
    """Print one sentence on standard output, or on standard error."""
    click.echo(_log_line(logging.INFO, sentence) if _log_line else visible(sentence), err=err)


def report_error(sentence: str, *, file: IO[Any] | None = None) -> None:
    """Print one sentence on standard error, in the format of all errors."""
    mark = _mark("error:", "red")
    line = _log_line(logging.ERROR, sentence) if _log_line else f"{mark} {visible(sentence)}"
    click.echo(line, err=True, file=file)


def _mark(word: str, colour: str) -> str:
    return click.style(word, fg=colour, bold=True) if is_coloured(sys.stderr) else word


warning_source: ContextVar[str] = ContextVar("warning_source", default="")
"""What the warnings of this task are about, e.g. a document: its file, position and object."""


def report_warning(sentence: str) -> None:
    """Print one sentence on standard error about something that did not stop the command."""
    if source := warning_source.get():
        sentence = f"{source}: {sentence}"
    mark = _mark("warning:", "yellow")
    line = _log_line(logging.WARNING, sentence) if _log_line else f"{mark} {visible(sentence)}"
    click.echo(line, err=True)
