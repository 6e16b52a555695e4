"""Ranges of numbers for estimates of costs and sizes; they never exceed 64 bits.

Source: cel-go `checker/cost.go` (SizeEstimate, CostEstimate).
"""

from __future__ import annotations

import math
from typing import NamedTuple

LIMIT = 2**64 - 1
"""Stands for any larger number, too."""

TRAVERSAL = 0.1
"""The cost of looking at one character."""
REGEX = 0.25
"""The cost of one character of a regular expression."""


class Range(NamedTuple):
    """From `least` to `most`, both included."""

    least: int
    most: int

    def plus(self, other: Range) -> Range:
        """The sum."""
        return Range(min(self.least + other.least, LIMIT), min(self.most + other.most, LIMIT))

    def times(self, other: Range) -> Range:
        """The product."""
        return Range(min(self.least * other.least, LIMIT), min(self.most * other.most, LIMIT))

    def scaled(self, factor: float) -> Range:
        """Multiplied by a fraction, rounded up."""
        return Range(_scaled(self.least, factor), _scaled(self.most, factor))

    def or_else(self, other: Range) -> Range:
        """The smallest range that covers both."""
        return Range(min(self.least, other.least), max(self.most, other.most))


def _scaled(number: int, factor: float) -> int:
    product = float(number) * factor
    return LIMIT if product >= 2.0**64 else min(math.ceil(product), LIMIT)


def exactly(number: int) -> Range:
    """A range of one number."""
    return Range(number, number)


NOTHING = exactly(0)
ONE = exactly(1)
UNKNOWN = Range(0, LIMIT)
EMPTY = Range(LIMIT, 0)
"""The empty range, neutral for a union."""
