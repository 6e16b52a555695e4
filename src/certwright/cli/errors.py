"""Errors and exit statuses of commands.

click.ClickException
├── click.UsageError    wrong use: exit status 2
├── Failed              one sentence on standard error: exit status 1
└── AlreadyTold         the sentences have been printed one by one: exit status 1
"""

from __future__ import annotations

import logging
from typing import IO, Any

import click

from certwright.kit import logs

_is_json = False


def use_json(is_json: bool) -> None:
    """Whether errors and warnings are lines of the JSON log, for the rest of the process."""
    global _is_json
    _is_json = is_json


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


def report_error(sentence: str, *, file: IO[Any] | None = None) -> None:
    """Print one sentence on standard error, in the format of all errors."""
    line = logs.json_line(logging.ERROR, sentence) if _is_json else f"error: {sentence}"
    click.echo(line, err=True, file=file)


def report_warning(sentence: str) -> None:
    """Print one sentence on standard error about something that did not stop the command."""
    click.echo(logs.json_line(logging.WARNING, sentence) if _is_json else f"warning: {sentence}", err=True)
