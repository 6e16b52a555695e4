"""The process may be killed after any write and after any request: a request to a set is never ordered at two
CAs, unless the first one failed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from controllers.acme.fake_world import FakeWorld
from controllers.sets.test_acme_members import issue, second_of, set_world, signer_of

_STEPS = 25
_STEPS_OF_A_MOVE = 33


@pytest.fixture
async def fake() -> AsyncIterator[FakeWorld]:
    """A world with a set of two ACME servers."""
    async with set_world("acme", "second") as made:
        yield made


async def run(fake: FakeWorld, step: int) -> None:
    """Issue, cut off after so many steps; start again."""
    await fake.start()
    fake.cut.left = step
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=20))
    await fake.start()
    await fake.world.advance(timedelta(minutes=3))


async def check_end(fake: FakeWorld) -> None:
    """The certificate is there, for one request, and nothing is left over."""
    assert await fake.world.is_ready("web"), (await fake.certificate()).status
    assert [request.metadata.name for request in await fake.requests()] == ["web-1"]
    assert [order.status.state for order in await fake.orders()].count("valid") == 1
    assert await fake.challenges() == []
    assert fake.shown.tokens == {}


@pytest.mark.parametrize(("is_away", "steps"), [(False, _STEPS), (True, _STEPS_OF_A_MOVE)])
async def test_the_steps_of_an_issuance_are_those_that_are_cut(
    fake: FakeWorld, is_away: bool, steps: int
) -> None:
    await fake.start()
    fake.ca.is_away = is_away
    before = fake.cut.count
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=20))
    assert await fake.world.is_ready("web")
    assert steps - 6 <= fake.cut.count - before <= steps


@pytest.mark.every(5)
@pytest.mark.parametrize("step", range(1, _STEPS + 1))
async def test_after_a_crash_at_any_step_the_request_is_ordered_once_and_at_one_server(
    fake: FakeWorld, step: int
) -> None:
    await run(fake, step)
    await check_end(fake)
    assert await signer_of(fake) == "acme"
    assert (len(fake.ca.orders), len(second_of(fake).orders)) == (1, 0)


@pytest.mark.every(5)
@pytest.mark.parametrize("step", range(1, _STEPS_OF_A_MOVE + 1))
async def test_after_a_crash_at_any_step_of_a_move_the_second_server_has_one_order(
    fake: FakeWorld, step: int
) -> None:
    await fake.world.advance(timedelta(minutes=1))
    fake.ca.is_away = True
    await run(fake, step)
    await check_end(fake)
    assert await signer_of(fake) == "second"
    assert (len(fake.ca.orders), len(second_of(fake).orders)) == (0, 1)
