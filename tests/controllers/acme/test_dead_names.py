"""A name that is alive waits for none that is dead."""

from __future__ import annotations

from controllers.acme.dead_names import measure


async def test_an_order_for_a_live_name_is_done_while_others_wait_for_dead_ones() -> None:
    # 10,000 of them: `make bench ARGS=dead_names`.
    figures = await measure(60, looks=20)
    assert figures.done_s < 5
