"""The process may be killed after any write and after any request to the CA: never a second order or account,
never a certificate whose key is lost.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.acme.protocol.messages import Action
from certwright.kube.util import http_messages
from certwright.pki.certificates import read_certificate
from certwright.pki.keys import load_private_key, public_key_der
from controllers.acme.fake_world import FakeWorld
from controllers.crashes import CONFLICT

_STEPS = 32
_ASKED = (
    Action.DIRECTORY,
    Action.NEW_NONCE,
    Action.NEW_ACCOUNT,
    Action.NEW_ORDER,
    Action.AUTHORIZATION,
    Action.CHALLENGE,
    Action.ORDER,
    Action.FINALIZE,
    Action.CERTIFICATE,
)


async def issue(fake: FakeWorld) -> None:
    """From nothing: an issuer and a Certificate of two names."""
    await fake.issuer()
    await fake.issue("web", "a.example.org", "b.example.org", after=timedelta(seconds=10))


async def check_end(fake: FakeWorld) -> None:
    """One account, one order, a pair that belongs together, nothing left over."""
    assert await fake.world.is_ready("web"), (await fake.certificate()).status
    assert len(fake.ca.accounts) == 1
    assert len(fake.ca.orders) == 1
    assert [order.status.state for order in await fake.orders()] == ["valid"]
    assert await fake.challenges() == []
    assert fake.shown.tokens == {}
    assert await fake.secret_names() == ["web"]
    secret = await fake.world.secret("web")
    leaf = read_certificate(secret.data["tls.crt"])
    assert public_key_der(load_private_key(secret.data["tls.key"])) == leaf.public_key_der
    assert [request.metadata.name for request in await fake.requests()] == ["web-1"]


async def test_the_steps_of_an_issuance_are_those_that_are_cut(bare: FakeWorld) -> None:
    await issue(bare)
    await check_end(bare)
    assert bare.cut.count <= _STEPS


@pytest.mark.every(5)
@pytest.mark.parametrize("step", range(1, _STEPS + 1))
async def test_a_crash_after_any_write_or_request_changes_nothing_in_the_end(
    bare: FakeWorld, step: int
) -> None:
    bare.cut.left = step
    await issue(bare)
    await bare.start()
    await bare.world.advance(timedelta(minutes=2))
    await check_end(bare)


async def test_at_a_server_that_lists_no_orders_only_a_lost_answer_to_new_order_costs_another_one(
    bare: FakeWorld,
) -> None:
    bare.ca.lists_orders = False
    await bare.issuer()
    await bare.issue("web")
    await bare.start()
    await bare.world.advance(timedelta(minutes=2))
    assert await bare.world.is_ready("web")
    assert len(bare.ca.orders) == 1


@pytest.mark.every(3)
@pytest.mark.parametrize("action", _ASKED)
@pytest.mark.parametrize("after", [False, True], ids=["unheard", "unanswered"])
async def test_an_answer_that_is_lost_is_asked_for_again(
    bare: FakeWorld, action: Action, *, after: bool
) -> None:
    bare.ca.lose(action, after=after)
    await issue(bare)
    await bare.world.advance(timedelta(minutes=2))
    await check_end(bare)


async def test_a_server_that_is_away_for_hours_is_no_failed_issuance(fake: FakeWorld) -> None:
    for action in _ASKED:
        fake.ca.lose(action, after=False, times=20)
    await fake.issue("web", "a.example.org", "b.example.org", after=timedelta(hours=3))
    assert (await fake.certificate()).status.failed_issuance_attempts is None
    assert "is failing" in (await fake.requests())[0].status.conditions[-1].message
    await fake.world.advance(timedelta(days=3))
    await check_end(fake)


async def test_a_crash_in_a_renewal_orders_once(bare: FakeWorld) -> None:
    await issue(bare)
    for step in (5, 7, 9, 12, 15):
        ordered = len(bare.ca.orders)
        bare.cut.left = step
        await bare.renew("web")
        await bare.world.advance(timedelta(seconds=10))
        await bare.start()
        await bare.world.advance(timedelta(minutes=2))
        assert len(bare.ca.orders) == ordered + 1
        assert len(bare.ca.accounts) == 1


async def test_an_order_whose_url_could_not_be_written_is_found_at_the_ca(bare: FakeWorld) -> None:
    handler, refused = bare.handler, list[str]()

    async def refuse_once(request: http_messages.Request) -> http_messages.Response:
        path = request.target.partition("?")[0]
        if not refused and request.method == "PATCH" and "/orders/" in path and path.endswith("/status"):
            refused.append(path)
            return http_messages.Response(409, {}, CONFLICT)
        return await handler(request)

    bare.handler = refuse_once
    await issue(bare)
    await bare.world.advance(timedelta(minutes=2))
    assert refused
    await check_end(bare)
