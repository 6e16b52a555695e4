"""Progress of certificates: as lines for logs and pipes, as a live table for terminals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import click
import msgspec

from certwright.cli.diagnosis import Diagnosis
from certwright.cli.errors import report
from certwright.cli.format import count, lines_of
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.encoding import visible

_LEAVE_LINES = 6


class Board(Protocol):
    """Shows the diagnoses of certificates while they change."""

    def show(self, stories: Mapping[ObjectKey, Diagnosis]) -> None:
        """Show the current diagnoses."""

    def say(self, line: str) -> None:
        """Print a permanent line."""

    def close(self) -> None:
        """End the display."""


class Lines:
    """One line for every change: for logs, pipes and files."""

    def __init__(self) -> None:
        self._reported: dict[ObjectKey, str] = {}

    def show(self, stories: Mapping[ObjectKey, Diagnosis]) -> None:
        """Print the certificates whose diagnosis has changed."""
        for key, story in stories.items():
            if self._reported.get(key) != str(story):
                self._reported[key] = str(story)
                self.say(visible(f"{key}: {story}"))

    def say(self, line: str) -> None:
        """Print a line."""
        report(line)

    def close(self) -> None:
        """Nothing to do."""


class Live:
    """A table that is redrawn in place, for a terminal."""

    def __init__(self) -> None:
        # rich costs 70 ms and 7 MB, spent only for a live table.
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console()
        self._live = RichLive(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, stories: Mapping[ObjectKey, Diagnosis]) -> None:
        """Draw the table: certificates that are not ready first, as many as fit into the window."""
        from rich.table import Table
        from rich.text import Text

        order = sorted(stories.items(), key=lambda item: (item[1].ready, item[0]))
        room = max(3, self._console.height - _LEAVE_LINES)
        ready = sum(story.ready for story in stories.values())
        table = Table(box=None, pad_edge=False, title_justify="left", title_style="bold")
        table.title = f"{ready} of {count(len(stories), 'certificate')} ready"
        longest = max((len(str(key)) for key in stories), default=0)
        table.add_column("CERTIFICATE", no_wrap=True, min_width=min(longest, self._console.width // 2))
        table.add_column("STATE", overflow="ellipsis", no_wrap=True)
        for key, story in order[:room]:
            style = "green" if story.ready else "yellow"
            table.add_row(str(key), Text(visible(str(story)), style=style))
        if len(order) > room:
            table.add_row(f"and {len(order) - room} more", "")
        self._live.update(table, refresh=True)

    def say(self, line: str) -> None:
        """Print a line above the table."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the table."""
        self._live.stop()


def board(*, terminal: bool) -> Board:
    """The board for standard output."""
    return Live() if terminal else Lines()


class Row(msgspec.Struct, frozen=True):
    """One row of the final table."""

    key: ObjectKey
    ready: bool
    issuer: str
    not_after: str
    renews_at: str
    files: str


_TITLES = ("NAME", "READY", "ISSUER", "NOT AFTER (UTC)", "RENEWS AT (UTC)", "FILES")


def print_table(rows: Sequence[Row], *, terminal: bool) -> None:
    """Print the final table: coloured on a terminal, plain elsewhere."""
    cells = [
        (str(r.key), "yes" if r.ready else "NO", r.issuer, r.not_after, r.renews_at, r.files) for r in rows
    ]
    lines = lines_of([_TITLES, *cells])
    for line, row in zip(lines, [None, *rows], strict=True):
        click.echo(_coloured(line, row) if terminal else line)


def _coloured(line: str, row: Row | None) -> Any:
    if row is None:
        return click.style(line, bold=True)
    return click.style(line, fg="green" if row.ready else "red")
