"""How a command ends when it does not do what was asked.

click.ClickException
├── click.UsageError    wrong use: exit status 2
├── Failed              one sentence on standard error: exit status 1
└── AlreadyTold         the sentences have been printed one by one: exit status 1
"""

from __future__ import annotations

from typing import IO, Any

import click


class Failed(click.ClickException):
    """The command could not do it; the text is one sentence for the person who typed it."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print `error: ` and the sentence."""
        tell_error(self.format_message(), file=file)


class AlreadyTold(click.ClickException):
    """Something failed and has been told; only the exit status is left."""

    def __init__(self) -> None:
        super().__init__("")

    def show(self, file: IO[Any] | None = None) -> None:
        """Print nothing."""


def tell_error(sentence: str, *, file: IO[Any] | None = None) -> None:
    """Print one sentence on standard error, as all errors look."""
    click.echo(f"error: {sentence}", err=True, file=file)


def tell_warning(sentence: str) -> None:
    """Print one sentence on standard error about something that did not stop the command."""
    click.echo(f"warning: {sentence}", err=True)
