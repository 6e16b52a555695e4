"""The page of a certificate of an ACME server: its order, its challenges, and what a renewal waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from certwright.acme.protocol.messages import Action
from controllers.acme.fake_world import FakeWorld, fake_world
from support.visitor import visitor

PAGE = "/ui/certificates/default/web"


@pytest.fixture
async def fake() -> AsyncIterator[FakeWorld]:
    """A certwright at a fake CA, with the issuer `acme`."""
    async with fake_world() as made:
        await made.issuer()
        yield made


async def test_the_chain_follows_an_issuance_without_a_list_of_orders(fake: FakeWorld) -> None:
    admin = await visitor(fake.world)
    fake.ca.slow.add("a.example.org")
    await fake.issue("web", "a.example.org", "b.example.org", after=timedelta(minutes=1))
    pending = await admin.get(PAGE)
    expected = (
        "Order pending: a.example.org: Waiting for the CA's verdict",
        "Challenge a.example.org by HTTP-01: processing",
        "Challenge b.example.org by HTTP-01: valid",
    )
    assert [words for words in expected if words not in pending.text] == []
    assert pending.html.count('aria-current="step"') == 1
    fake.decide()
    await fake.world.advance(timedelta(minutes=5))
    issued = await admin.get(PAGE)
    assert "Order valid" in issued.text
    assert "Signed by ClusterIssuer acme" in issued.text
    assert "Issuing certificate as Secret does not exist" in issued.text
    assert "67 seconds" in issued.text
    assert 'aria-current="step"' not in issued.html
    assert [
        request for request in admin.access.requests if "/orders?" in request or request.endswith("/orders")
    ] == []


async def test_a_renewal_that_has_to_wait_says_until_when(fake: FakeWorld) -> None:
    admin = await visitor(fake.world)
    fake.ca.refuse(Action.NEW_ORDER, "rateLimited", status=429, retry_after="7200")
    await fake.issue("web", after=timedelta(minutes=1))
    assert "Retry now" in (await admin.get(PAGE)).text
    done = await admin.post(f"{PAGE}/renew")
    assert "certificate default/web waits until 2026-01-01T02:" in done.text
    assert "renew does not override that." in done.text
