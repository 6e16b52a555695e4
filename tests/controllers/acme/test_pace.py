"""When a server is first asked for its verdict: learned from the verdicts before."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from certwright.controllers.acme.challenges import Pace

SHORTEST, LONGEST = timedelta(seconds=0.05), timedelta(seconds=1)


def test_a_quick_server_is_asked_as_soon_as_can_be() -> None:
    pace = Pace()
    for _ in range(200):
        pace.asked(after=pace.delay, is_there=True)
    assert pace.delay == SHORTEST


def test_a_server_that_never_has_it_in_time_is_asked_after_a_second() -> None:
    pace = Pace()
    for _ in range(100):
        pace.asked(after=pace.delay, is_there=False)
    assert pace.delay == LONGEST


@pytest.mark.parametrize("typical_s", [0.2, 0.5])
def test_nearly_all_first_questions_find_the_verdict(typical_s: float) -> None:
    chance, pace, delays = random.Random(7), Pace(), []
    for _ in range(5_000):
        took = timedelta(seconds=chance.uniform(0.5, 1.5) * typical_s)
        delays.append(took <= pace.delay)
        pace.asked(after=pace.delay, is_there=delays[-1])
    assert 0.965 < sum(delays[1_000:]) / 4_000 < 0.995


def test_sixty_that_were_asked_too_early_together_are_one_piece_of_news() -> None:
    pace, after = Pace(), Pace().delay
    for _ in range(60):
        pace.asked(after=after, is_there=False)
    assert pace.delay <= 1.5 * after
