"""10,000 Orders for names that nobody answers for, and one Certificate for a name that is alive: how soon?

make bench ARGS=dead_names
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from bench.rig import table

# The scene is the one of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from controllers.acme.dead_names import Figures, measure

SIZES = (100, 1_000, 10_000)
MAY_TAKE_S = 5.0


def main() -> None:
    """Measure, and print a table."""
    logging.disable(logging.WARNING)
    rows = [_row(asyncio.run(measure(size))) for size in SIZES]
    table(["dead names waiting", "the live one is done after", f"may take {MAY_TAKE_S:g} s"], rows)


def _row(figures: Figures) -> list[str]:
    return [f"{figures.dead:,}", f"{figures.done_s:.2f} s", "yes" if figures.done_s < MAY_TAKE_S else "NO"]
