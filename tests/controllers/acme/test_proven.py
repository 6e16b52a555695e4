"""A name that the CA has called proven: the Order goes on at once, readers are told when it takes longer."""

from __future__ import annotations

from datetime import timedelta

from certwright.acme.protocol.messages import Action
from certwright.kube.util.http_messages import Request, Response
from controllers.acme.fake_world import FakeWorld


def writes_of(fake: FakeWorld, kind: str) -> list[str]:
    """What is written of a kind from now on: the methods, in their order."""
    found: list[str] = []
    handler = fake.handler

    async def handle(request: Request) -> Response:
        if request.method != "GET" and f"/{kind}" in request.target:
            found.append(request.method)
        return await handler(request)

    fake.handler = handle
    return found


async def test_a_name_that_is_proven_at_once_costs_no_status_write(fake: FakeWorld) -> None:
    await fake.issuer()
    writes = writes_of(fake, "challenges")
    await fake.issue("web", "a.example.org", "b.example.org")
    await fake.world.advance(timedelta(seconds=1))
    assert await fake.world.is_ready("web")
    assert sorted(writes) == ["DELETE", "DELETE", "POST", "POST"]


async def test_where_the_order_takes_longer_the_challenge_says_that_it_is_valid(fake: FakeWorld) -> None:
    await fake.issuer()
    fake.ca.refuse(Action.FINALIZE, "rateLimited", "too many", status=429, retry_after="60")
    await fake.issue("web")
    await fake.world.advance(timedelta(seconds=2))
    assert [item.status.state for item in await fake.challenges()] == [""]
    assert fake.shown.tokens == {}
    await fake.world.advance(timedelta(seconds=10))
    (challenge,) = await fake.challenges()
    assert (challenge.status.state, challenge.status.presented, challenge.status.processing) == (
        "valid",
        False,
        False,
    )
    asked = fake.ca.counted()
    await fake.world.advance(timedelta(seconds=60))
    assert await fake.world.is_ready("web")
    assert fake.ca.counted()[Action.CHALLENGE] == asked[Action.CHALLENGE] == 1


async def test_an_order_that_tells_which_names_it_waits_for_names_no_proven_one(fake: FakeWorld) -> None:
    await fake.issuer()
    fake.ca.slow.update(("a.example.org", "b.example.org"))
    await fake.issue("web", "a.example.org", "b.example.org", "c.example.org")
    await fake.world.advance(timedelta(seconds=10))
    (order,) = await fake.orders()
    assert order.status.reason.count("Waiting for the CA's verdict") == 2
    fake.ca.decide(
        next(
            authorization
            for authorization in fake.ca.authorizations.values()
            if authorization.name == "a.example.org"
        )
    )
    await fake.world.advance(timedelta(seconds=30))
    (order,) = await fake.orders()
    assert order.status.reason == "b.example.org: Waiting for the CA's verdict"
