"""Chances of a conflict between generated names: theory and simulation (KEP-4420).

`t` counts attempts: the first name and every retry after it. A create fails when `t` names in a row were
taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable

NAMES = 27**5
"""How many suffixes of five characters out of 27 there are."""
ATTEMPTS = range(1, 10)
"""From no retry to eight retries."""
SIZES = (500, 5_000, 100_000, 1_000_000)
GOAL, GOAL_NAMES = 0.001, 1_000_000


def recurrence(attempts: int, sizes: tuple[int, ...] = SIZES) -> list[float]:
    """The KEP's C_n = C_{n-1} + (1 - C_{n-1}) ((n-1)/N)^t at each of `sizes` (ascending).

    Written for 1 - C as a product of (1 - p), whose logarithms are added up: the same number, without losing
    all digits where C is 1e-13.
    """
    chances, survival, taken = [], 0.0, 0
    for size in sizes:
        survival += math.fsum(math.log1p(-((n / NAMES) ** attempts)) for n in range(taken, size))
        taken = size
        chances.append(-math.expm1(survival))
    return chances


def expected_failures(attempts: int, size: float, names: float = NAMES) -> float:
    """How many of `size` creates are expected to fail: the sum of (n/N)^t for n < size (Euler–Maclaurin)."""
    t = attempts
    total = size ** (t + 1) / (t + 1) - size**t / 2 + t * size ** (t - 1) / 12
    return total / names**t if size > 1 else 0.0


def chance(attempts: int, size: float, names: float = NAMES) -> float:
    """The chance that at least one of `size` creates fails, for curves: failures are rare and independent."""
    return -math.expm1(-expected_failures(attempts, size, names))


def size_at(target: float, attempts: int, names: float = NAMES) -> float:
    """How many names there may be until the chance of a conflict is `target`."""
    low, high = 1.0, names
    while high / low > 1.000001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if chance(attempts, middle, names) < target else (low, middle)
    return low


def simulate(size: int, runs: int, suffix: Callable[[], str]) -> dict[int, tuple[int, int]]:
    """Draw `size` names, `runs` times. Per number of attempts: runs with a failure, and failures in all."""
    with_failure, failures = dict.fromkeys(ATTEMPTS, 0), dict.fromkeys(ATTEMPTS, 0)
    for _ in range(runs):
        counted = _one_run(size, suffix)
        for attempts in ATTEMPTS:
            here = sum(count for needed, count in counted.items() if needed > attempts)
            failures[attempts] += here
            with_failure[attempts] += here > 0
    return {attempts: (with_failure[attempts], failures[attempts]) for attempts in ATTEMPTS}


def _one_run(size: int, suffix: Callable[[], str]) -> dict[int, int]:
    """How many creates needed two names, three, …"""
    taken: set[str] = set()
    counted: dict[int, int] = {}
    for _ in range(size):
        name, needed = suffix(), 1
        while name in taken:
            name, needed = suffix(), needed + 1
        taken.add(name)
        if needed > 1:
            counted[needed] = counted.get(needed, 0) + 1
    return counted
