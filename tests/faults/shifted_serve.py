"""`certwright`, by a clock that somebody else sets: python shifted_serve.py FILE WORD…

FILE holds the seconds by which the wall clock is wrong; it is read whenever the time is asked for.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from certwright.cli.main import program
from certwright.kube.util.clock import SystemClock


def main(file: Path, words: list[str]) -> None:
    """Have every clock of this process go wrong."""

    def now(_: SystemClock) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(file.read_text()))

    with patch.object(SystemClock, "now", now):
        program(words, prog_name="certwright")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
