"""A name that is alive waits for none that is dead."""

from __future__ import annotations

from controllers.acme.dead_names import measure


async def test_an_order_for_a_live_name_is_done_before_two_hundred_for_dead_ones() -> None:
    # As many for each look at once as 10,000 are for 200 (`make bench ARGS=dead_names`).
    figures = await measure(200, looks=4)
    assert figures.done_s < 5
