"""A name that is alive waits for none that is dead.."""

from __future__ import annotations

import pytest

from certwright.acme.solvers import checks, names
from controllers.acme.dead_names import When, measure


@pytest.mark.parametrize("when", ["before", "amid"])
@pytest.mark.long  # real time passes
async def test_a_live_name_is_done_while_the_dead_ones_have_not_even_been_looked_for(when: When) -> None:
    # To look for all of them takes 60 s, and the live one three of the CPU's on the slowest machine.
    assert (await measure(200, looks=5, when=when)).not_looked_for > 0


@pytest.mark.long  # real time passes
async def test_a_live_name_is_done_while_the_dead_ones_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # By then a look takes up to two minutes, and there are more who look than can.
    monkeypatch.setattr(names, "_TIMEOUT_S", 120.0)
    monkeypatch.setattr(checks, "_TIMEOUT_S", 120.0)
    assert (await measure(60, looks=20)).done_s < 60
