"""Progress of many objects: lines that are redrawn in place on a terminal, one line per change elsewhere."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Mapping
from typing import IO

import click

from certwright.cli.errors import is_coloured, report
from certwright.diagnosis.certificates import Diagnosis
from certwright.kube.util.encoding import visible

_LEAVE_LINES = 4
_SMALLEST = (40, 12)


class LineDisplay:
    """One line for every change: for logs, pipes and files. `err`: on standard error."""

    def __init__(self, *, err: bool = False) -> None:
        self._err = err
        self._reported: dict[str, str] = {}

    def show(self, title: str, stories: Mapping[str, Diagnosis]) -> None:  # noqa: ARG002 - as `LiveDisplay.show`
        """Print the objects whose diagnosis has changed."""
        for key, story in stories.items():
            if self._reported.get(key) != str(story):
                self._reported[key] = str(story)
                report(f"{key}: {story}", err=self._err)

    def print(self, line: str) -> None:
        """Print a line."""
        report(line)

    def close(self) -> None:
        """Do nothing."""


class LiveDisplay:
    """Lines that are redrawn in place, for a terminal."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._drawn: list[str] = []

    def show(self, title: str, stories: Mapping[str, Diagnosis]) -> None:
        """Draw the title and the diagnoses: of objects that are not ready first, as many as fit."""
        try:
            width, height = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            width, height = 80, 24
        # One column less: some terminals break a line that fills the last one.
        width, height = max(width - 1, _SMALLEST[0]), max(height, _SMALLEST[1])
        order = sorted(stories.items(), key=lambda item: (item[1].ready, item[0]))
        is_colour = is_coloured(self._stream)
        lines = [click.style(title[:width], bold=True) if is_colour else title[:width]] if title else []
        for n, (key, story) in enumerate(order):
            text = " ".join(visible(f"{key}: {story}").split())
            wrapped = textwrap.wrap(text, width, subsequent_indent="  ")
            if len(lines) + len(wrapped) > height - _LEAVE_LINES and n:
                lines.append(f"and {len(order) - n} more")
                break
            colour = "green" if story.ready else "yellow"
            lines += [click.style(line, fg=colour) for line in wrapped] if is_colour else wrapped
        if lines != self._drawn:
            self._erase()
            self._drawn = lines
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    def print(self, line: str) -> None:
        """Print a line above the others."""
        self._erase()
        report(line)

    def close(self) -> None:
        """Remove the lines."""
        self._erase()

    def _erase(self) -> None:
        # ECMA-48: CPL (to the start of the line that many above), ED (from there to the end of the screen).
        if self._drawn:
            self._stream.write(f"\x1b[{len(self._drawn)}F\x1b[J")
            self._stream.flush()
        self._drawn = []


ProgressDisplay = LineDisplay | LiveDisplay
"""Shows the diagnoses of objects, by their names, while they change."""


def make_display(*, terminal: bool, err: bool = False) -> ProgressDisplay:
    """The board on standard output, or on standard error."""
    if terminal:
        return LiveDisplay(sys.stderr if err else sys.stdout)
    return LineDisplay(err=err)
