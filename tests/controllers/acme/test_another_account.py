"""An issuer is given another server or another account while Orders are under way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from acme.fake_ca import FakeCa
from certwright.acme.protocol.messages import Action
from certwright.kube.api.core import SECRETS
from certwright.resources import names
from certwright.resources.acme import Order
from certwright.resources.table import CLUSTER_ISSUERS, ORDERS
from controllers.acme.fake_world import FakeWorld


async def point_at(fake: FakeWorld, ca: FakeCa) -> None:
    """Change the server of the issuer."""
    patch = {"spec": {"acme": {"server": ca.directory}}}
    await fake.world.client.patch(CLUSTER_ISSUERS, "acme", "", patch)
    await fake.world.settle()


async def is_issued_without_failure(fake: FakeWorld) -> None:
    """Ready within seconds; no attempt failed, and the first request still serves."""
    await fake.world.advance(timedelta(seconds=10))
    assert await fake.world.is_ready("web"), [order.status for order in await fake.orders()]
    certificate = await fake.certificate()
    assert certificate.status.failed_issuance_attempts is None
    assert certificate.status.last_failure_time is None
    assert len(await fake.requests()) == 1


async def ended(fake: FakeWorld) -> Order:
    """The Order that was given up."""
    (order,) = [order for order in await fake.orders() if order.status.state == "errored"]
    return order


@pytest.mark.parametrize("slow", [Action.CHALLENGE, Action.FINALIZE])
@pytest.mark.parametrize("restarts", [False, True])
async def test_an_order_at_another_server_is_replaced(bare: FakeWorld, slow: Action, restarts: bool) -> None:
    second = bare.second_ca()
    await bare.issuer()
    if slow is Action.CHALLENGE:
        bare.ca.slow.add("a.example.org")
    else:
        bare.ca.processing_polls = 10**6
    await bare.issue("web", after=timedelta(seconds=5))
    (order,) = await bare.orders()
    assert order.metadata.annotations[names.ACME_SERVER] == bare.ca.directory
    assert order.metadata.annotations[names.ACME_ACCOUNT] in bare.ca.accounts
    if restarts:
        await bare.world.stop_controllers()
    asked = len(bare.ca.requests)
    await point_at(bare, second)
    if restarts:
        await bare.start()
    await is_issued_without_failure(bare)
    assert len(bare.ca.requests) == asked
    assert "no longer uses https://ca.example/directory" in (await ended(bare)).status.reason
    assert second.counted()[Action.NEW_ORDER] == 1
    assert bare.shown.tokens == {}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_wait_that_one_server_asks_for_does_not_bind_another(bare: FakeWorld, restarts: bool) -> None:
    second = bare.second_ca()
    await bare.issuer()
    bare.ca.refuse(Action.NEW_ORDER, "rateLimited", status=429, retry_after="86400")
    await bare.issue("web")
    await point_at(bare, second)
    if restarts:
        await bare.start()
    await is_issued_without_failure(bare)


async def test_an_order_of_a_replaced_account_key_is_replaced(fake: FakeWorld) -> None:
    fake.ca.slow.add("a.example.org")
    await fake.issue("web")
    fake.ca.slow.clear()
    await fake.world.client.delete(SECRETS, "acme-account", "kube-system")
    await fake.world.advance(timedelta(seconds=10))
    assert len(fake.ca.accounts) == 2
    assert (await fake.ready_of())[0] == "True"
    await is_issued_without_failure(fake)
    assert fake.ca.counted()[Action.NEW_ORDER] == 2


@pytest.mark.parametrize("moves", [True, False])
async def test_an_order_without_annotations_is_judged_by_its_url(fake: FakeWorld, moves: bool) -> None:
    """Made by cert-manager, or by an earlier version."""
    second = fake.second_ca()
    fake.ca.slow.add("a.example.org")
    await fake.issue("web")
    (order,) = await fake.orders()
    await fake.world.stop_controllers()
    none = {names.ACME_SERVER: None, names.ACME_ACCOUNT: None}
    await fake.world.client.patch(ORDERS, order.metadata.name, "default", {"metadata": {"annotations": none}})
    if moves:
        await point_at(fake, second)
    asked = len(fake.ca.requests)
    await fake.start()
    if not moves:
        fake.decide()
    await is_issued_without_failure(fake)
    assert (len(fake.ca.requests) == asked) is moves
    assert fake.ca.counted()[Action.NEW_ORDER] == 1


async def test_going_back_to_the_first_server_places_a_third_order(bare: FakeWorld) -> None:
    second = bare.second_ca()
    await bare.issuer()
    bare.ca.slow.add("a.example.org")
    second.slow.add("a.example.org")
    await bare.issue("web")
    await point_at(bare, second)
    await bare.world.advance(timedelta(seconds=5))
    bare.decide()
    await point_at(bare, bare.ca)
    await is_issued_without_failure(bare)


async def test_an_order_of_an_issuer_that_is_no_acme_issuer_any_more_fails(fake: FakeWorld) -> None:
    fake.ca.slow.add("a.example.org")
    await fake.issue("web", after=timedelta(seconds=5))
    assert fake.shown.tokens != {}
    patch: dict[str, Any] = {"spec": {"acme": None, "selfSigned": {}}}
    await fake.world.client.patch(CLUSTER_ISSUERS, "acme", "", patch)
    await fake.world.advance(timedelta(seconds=5))
    assert await fake.world.is_ready("web")
    (order,) = await fake.orders()
    assert (order.status.state, order.status.reason) == (
        "errored",
        'ClusterIssuer "acme" is not an ACME issuer',
    )
    assert fake.shown.tokens == {}
    assert not any(challenge.status.presented for challenge in await fake.challenges())


async def test_an_order_of_a_former_profile_is_given_up(bare: FakeWorld) -> None:
    bare.ca.meta = {"profiles": {"classic": "https://ca.example/c", "short": "https://ca.example/s"}}
    await bare.issuer(profile="classic")
    bare.ca.slow.add("a.example.org")
    await bare.issue("web", after=timedelta(seconds=5))
    patch = {"spec": {"acme": {"profile": "short"}}}
    await bare.world.client.patch(CLUSTER_ISSUERS, "acme", "", patch)
    await bare.world.advance(timedelta(seconds=5))
    assert {challenge.status.state for challenge in await bare.challenges()} == {"errored", "processing"}
    bare.decide()
    await is_issued_without_failure(bare)
    assert bare.ca.counted()[Action.FINALIZE] == 1
    assert "profile or duration has changed" in (await ended(bare)).status.reason
