"""Several Certificates with the same names at one account: CAs answer a new order with the pending or ready
one that the account has for these names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from certwright.acme.protocol.messages import Action
from certwright.acme.ratelimits.published import CaLimits, Limit
from certwright.kit.rate_limit import Rate
from certwright.resources.table import CERTIFICATES
from controllers.acme.fake_world import FakeWorld, fake_world

COPIES = ("one", "two", "three", "four", "five")
SECONDS = timedelta(seconds=30)


async def are_ready_without_failure(fake: FakeWorld, *copies: str) -> None:
    """All have certificates, and no attempt has failed."""
    for name in copies:
        assert await fake.world.is_ready(name), [order.status for order in await fake.orders()]
        certificate = await fake.certificate(name)
        assert certificate.status.failed_issuance_attempts is None
        assert certificate.status.last_failure_time is None


@pytest.mark.parametrize("polls", [0, 3])
async def test_all_copies_are_ready_within_seconds(bare: FakeWorld, polls: int) -> None:
    bare.ca.processing_polls = polls
    await bare.issuer()
    bare.ca.slow.add("a.example.org")
    for name in COPIES:
        await bare.issue(name)
    reasons = [order.status.reason for order in await bare.orders()]
    assert sum("the CA has this order for Order default/" in reason for reason in reasons) == 4
    bare.decide()
    await bare.world.advance(SECONDS)
    await are_ready_without_failure(bare, *COPIES)
    assert bare.ca.counted()[Action.NEW_ORDER] == 2 * len(COPIES) - 1


async def test_the_order_of_another_installation_is_ordered_again(fake: FakeWorld) -> None:
    """It has finalized the common order before us."""
    taken: list[str] = []

    def finalizes_first(action: Action, _payload: dict[str, Any]) -> None:
        if action is Action.FINALIZE and len(taken) < 3:
            order = list(fake.ca.orders.values())[-1]
            taken.append(order.url)
            fake.ca.issue_for_another_key(order)

    fake.ca.before = finalizes_first
    await fake.issue("one", after=SECONDS)
    await are_ready_without_failure(fake, "one")
    assert len(taken) == 3


async def test_a_ca_that_always_answers_with_an_old_order_is_reported(fake: FakeWorld) -> None:
    await fake.issue("one", after=SECONDS)
    fake.ca.reuses_orders = ("pending", "ready", "valid")
    await fake.issue("two", after=SECONDS)
    assert "certificate for another key" in await fake.message_of("Issuing", "two")
    assert fake.ca.counted()[Action.NEW_ORDER] <= 12
    fake.ca.reuses_orders = ("pending", "ready")
    await fake.world.advance(timedelta(hours=2))
    assert await fake.world.is_ready("two")


async def test_an_order_that_does_not_get_on_stops_no_other(bare: FakeWorld) -> None:
    """Its solver cannot present anything; the other issuer has the same account and a solver that works."""
    broken = {"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "9999h"}
    await bare.issuer(solvers=[broken])
    await bare.issuer("works", privateKeySecretRef={"name": "acme-account"})
    await bare.issue("stuck")
    await bare.issue("one", issuer="works", after=timedelta(minutes=2))
    await are_ready_without_failure(bare, "one")


async def test_the_end_of_the_first_one_is_not_needed(fake: FakeWorld) -> None:
    fake.ca.slow.add("a.example.org")
    for name in COPIES:
        await fake.issue(name)
    await fake.world.client.delete(CERTIFICATES, "one", "default")
    fake.decide()
    await fake.world.advance(SECONDS)
    await are_ready_without_failure(fake, *COPIES[1:])


@pytest.mark.parametrize(("allowed", "ready"), [(5, 5), (3, 3)])
async def test_copies_wait_for_each_other_within_the_cas_limits(allowed: int, ready: int) -> None:
    limits = {
        "newOrders": Limit(Rate(300, timedelta(hours=3))),
        "certificatesPerSet": Limit(Rate(allowed, timedelta(days=7))),
    }
    async with fake_world(limits={"ca.example": CaLimits(name="the CA", limits=limits)}) as fake:
        await fake.issuer()
        for name in COPIES:
            await fake.issue(name)
        await fake.world.advance(SECONDS)
        assert sum([await fake.world.is_ready(name) for name in COPIES]) == ready
