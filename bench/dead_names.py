"""10,000 Orders for names that nobody answers for, and one Certificate for a name that is alive, which is
ordered before, amid or after them: how soon is it done?

make bench ARGS=dead_names
"""

from __future__ import annotations

import asyncio
import logging

from bench.rig import table
from controllers.acme.dead_names import Figures, When, measure

SIZES = (100, 1_000, 10_000)
WHEN: tuple[When, ...] = ("before", "amid", "after")
MAY_TAKE_S = 5.0


def main() -> None:
    """Measure, and print a table."""
    logging.disable(logging.WARNING)
    rows = [_row(when, asyncio.run(measure(size, when=when))) for size in SIZES for when in WHEN]
    heads = ["dead names", "the live one is ordered", "and done after", f"may take {MAY_TAKE_S:g} s"]
    table(heads, rows)


def _row(when: When, figures: Figures) -> list[str]:
    is_soon = "yes" if figures.done_s < MAY_TAKE_S else "NO"
    return [f"{figures.dead:,}", when, f"{figures.done_s:.2f} s", is_soon]
