"""A name that is alive waits for none that is dead. 10,000 of them: `make bench ARGS=dead_names`."""

from __future__ import annotations

import pytest

from controllers.acme.dead_names import When, measure


@pytest.mark.parametrize("when", ["before", "amid"])
async def test_a_live_name_is_done_while_the_dead_ones_have_not_even_been_looked_for(when: When) -> None:
    # To look for all of them takes 9 s.
    assert (await measure(60, looks=10, when=when)).not_looked_for > 0


async def test_a_live_name_is_done_while_the_dead_ones_wait() -> None:
    # By then a look takes up to ten seconds, and there are more who look than can.
    assert (await measure(60, looks=20)).done_s < 5
