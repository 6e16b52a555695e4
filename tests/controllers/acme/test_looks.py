"""Looks for proofs, as the Challenges take them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from certwright.acme.solvers.contract import Check, CheckSettings, NotYet, Ready, Task
from controllers.acme.fake_world import fake_world


class Broken:
    """Has all looks taken by a check with a mistake in it, and counts them."""

    looks = 0

    def make_check(self, _check_settings: CheckSettings) -> Check:
        """See `MakeCheck`."""
        return _BrokenCheck(self)


@dataclass
class _BrokenCheck:
    counts: Broken

    async def check(self, _task: Task) -> Ready | NotYet:
        """See `Check`."""
        self.counts.looks += 1
        raise KeyError("a mistake")


async def test_a_look_that_fails_by_a_mistake_of_ours_is_taken_again_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = Broken()
    async with fake_world(make_check=broken.make_check) as fake:
        await fake.issuer(solvers=[{"http01": {"ingress": {}}}])
        await fake.issue()
        await fake.world.advance(timedelta(minutes=1))
        (challenge,) = await fake.challenges()
        assert 5 < broken.looks < 15
        assert "a mistake" in challenge.status.reason
        assert "Traceback" in caplog.text
