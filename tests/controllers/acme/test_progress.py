"""How Orders and Challenges progress: what wakes them, what is written meanwhile, and what is made again."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.acme.protocol.messages import Action
from certwright.acme.solvers.contract import SolverError, Task
from certwright.controllers.cache.shard_filter import is_own_write, working_on
from certwright.kube.api import conditions
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.util.http_messages import Request, Response
from certwright.resources.acme import Challenge
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CHALLENGES, ORDERS
from controllers.acme.fake_world import HTTP01, FakeWorld, Shown, fake_world
from controllers.crashes import Webhook

KEY = ObjectKey("default", "web")
NUMBER = 5


def runs(fake: FakeWorld) -> dict[str, int]:
    """How often each controller has looked at an object so far."""
    assert fake.world.controllers is not None
    text = fake.world.controllers.metrics.take()().decode()
    counts = re.findall(r'sync_call_count\{controller="(\w+)"\} (\d+)', text)
    return {name: int(number) for name, number in counts}


async def test_an_issuance_takes_no_pass_for_nothing(fake: FakeWorld) -> None:
    before = runs(fake)
    for number in range(NUMBER):
        await fake.issue(f"web-{number}", f"{number}.example.org")
    await fake.world.advance(timedelta(seconds=20))
    spent = {name: number - before[name] for name, number in runs(fake).items()}
    # Begun, ended, cleared up; approved, ordered, signed; placed, finalised, fetched, cleared up; shown,
    # told, judged, deleted.
    assert spent["certificates"] <= 3 * NUMBER
    assert spent["certificaterequests"] <= 3 * NUMBER
    assert spent["orders"] <= 4 * NUMBER
    assert spent["challenges"] <= 5 * NUMBER


async def test_an_order_of_many_names_is_woken_by_the_last_that_is_proven() -> None:
    async with fake_world(max_concurrent_challenges=2) as fake:
        await fake.issuer()
        before = runs(fake)
        await fake.issue(
            "web", *(f"{number}.example.org" for number in range(20)), after=timedelta(seconds=20)
        )
        assert await fake.world.is_ready("web")
        # As many as for one of one name.
        assert runs(fake)["orders"] - before["orders"] <= 4


async def test_an_order_that_somebody_deletes_is_made_again(bare: FakeWorld) -> None:
    bare.silent.add(Action.CHALLENGE)
    await bare.issuer()
    await bare.issue("web")
    (order,) = await bare.orders()
    await bare.world.client.delete(ORDERS, order.metadata.name, "default")
    await bare.world.settle()
    (again,) = await bare.orders()
    assert again.metadata.uid != order.metadata.uid


def test_own_writes_are_those_of_the_object_that_is_worked_on() -> None:
    assert not is_own_write(CERTIFICATES, KEY)
    with working_on(CERTIFICATES, KEY):
        assert is_own_write(CERTIFICATES, KEY)
        assert not is_own_write(CERTIFICATE_REQUESTS, KEY)
        assert not is_own_write(CERTIFICATES, ObjectKey("default", "other"))
    assert not is_own_write(CERTIFICATES, KEY)


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
    writes = writes_of(fake, "challenges")
    await fake.issue("web", "a.example.org", "b.example.org", after=timedelta(seconds=1))
    assert await fake.world.is_ready("web")
    assert sorted(writes) == ["DELETE", "DELETE", "POST", "POST"]


async def test_where_the_order_takes_longer_the_challenge_says_that_it_is_valid(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.FINALIZE, "rateLimited", "too many", status=429, retry_after="60")
    await fake.issue("web", after=timedelta(seconds=2))
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
    fake.ca.slow.update(("a.example.org", "b.example.org"))
    await fake.issue("web", "a.example.org", "b.example.org", "c.example.org", after=timedelta(seconds=10))
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


A_WHILE = timedelta(seconds=5)


async def shown_of(fake: FakeWorld) -> list[tuple[str, str]]:
    """The name and the state of each Challenge."""
    return sorted((challenge.spec.dns_name, challenge.status.state) for challenge in await fake.challenges())


class Broken(Shown):
    """Cannot show anything, and counts how often it was asked to."""

    tries = 0

    async def present(self, task: Task) -> None:
        """See `Solver`."""
        self.tries += 1
        raise SolverError(f"no room for {task.identifier}")


async def leave_failed(fake: FakeWorld, like: Challenge) -> None:
    """A Challenge of the same Order that has failed, and that no solver of the issuer asks for."""
    owners = like.metadata.owner_references
    meta = ObjectMeta(name="old", namespace=like.metadata.namespace, owner_references=owners)
    spec = msgspec.structs.replace(like.spec, token="old", dns_name="old")
    made = await fake.world.create(CHALLENGES, Challenge(metadata=meta, spec=spec))
    status = {"status": {"state": "errored", "reason": "it has failed"}}
    await fake.world.client.patch(CHALLENGES, "old", made.metadata.namespace, status, subresource="status")
    await fake.world.advance(A_WHILE)


async def test_a_deleted_challenge_is_made_again_though_one_that_has_failed_is_left_to_be_read(
    bare: FakeWorld,
) -> None:
    await bare.issuer(solvers=[{**HTTP01, "waitInsteadOfSelfCheck": "1m"}])
    await bare.issue("web", "a.example.org", "b.example.org", after=A_WHILE)
    needed = await bare.challenges()
    await leave_failed(bare, needed[0])
    await bare.world.client.delete(CHALLENGES, needed[0].metadata.name, "default")
    await bare.world.advance(A_WHILE)
    assert await shown_of(bare) == [
        ("a.example.org", "pending"),
        ("b.example.org", "pending"),
        ("old", "errored"),
    ]
    await bare.world.advance(timedelta(minutes=2))
    assert await bare.world.is_ready("web")


async def test_one_that_is_made_again_is_tried_like_a_new_one() -> None:
    broken = Broken()
    async with fake_world(responder=broken) as fake:
        await fake.issuer()
        await fake.issue(after=timedelta(hours=1))
        before = broken.tries
        (challenge,) = await fake.challenges()
        await fake.world.client.delete(CHALLENGES, challenge.metadata.name, "default")
        await fake.world.advance(timedelta(seconds=20))
        assert broken.tries - before >= 3


async def test_one_is_not_made_again_once_the_server_has_the_signing_request(bare: FakeWorld) -> None:
    bare.ca.processing_polls = 6
    await bare.issuer()
    await bare.issue(after=timedelta(seconds=1))
    assert bare.ca.counted()[Action.FINALIZE] == 1
    (challenge,) = await bare.challenges()
    await bare.world.client.delete(CHALLENGES, challenge.metadata.name, "default")
    await bare.world.settle()
    assert await bare.challenges() == []
    await bare.world.advance(timedelta(minutes=1))
    assert await bare.world.is_ready("web")
    assert bare.ca.counted()[Action.CHALLENGE] == 1


def without_owner(body: dict[str, Any]) -> None:
    """Removes the owners of an object, as an admission webhook may."""
    body["metadata"].pop("ownerReferences", None)


@pytest.mark.parametrize("kind", [ORDERS, CHALLENGES], ids=["an Order", "a Challenge"])
async def test_what_loses_its_owner_is_deleted_and_made_again_every_ten_minutes(
    fake: FakeWorld, kind: AnyKind
) -> None:
    webhook = Webhook(fake.world, kind.plural, without_owner)
    await fake.issue("web", "a.example.org", after=timedelta(minutes=55))
    # The status that reports it may have it reconciled once more.
    assert 6 <= webhook.created <= 7
    assert (await fake.world.client.list(kind, "default")).items == []
    certificate = await fake.world.certificate("web")
    issuing = conditions.find(certificate.status.conditions, "Issuing")
    assert issuing is not None
    assert f"removed or changed the owner reference of {kind.kind}" in issuing.message
    webhook.change = lambda _: None
    await fake.world.advance(timedelta(minutes=15))
    assert await fake.world.is_ready("web")


ORDERS_AT_ONCE = 20


async def test_all_are_finalised_while_few_are_fetched(fake: FakeWorld) -> None:
    # Each that is fetched stays so: how many there are tells how many go at once.
    fake.silent.add(Action.CERTIFICATE)
    for number in range(ORDERS_AT_ONCE):
        await fake.issue(f"web-{number}", f"{number}.example.org")
    await fake.world.advance(timedelta(seconds=10))
    assert fake.ca.counted()[Action.FINALIZE] == ORDERS_AT_ONCE
    assert 0 < fake.ca.counted()[Action.CERTIFICATE] < ORDERS_AT_ONCE / 2


async def test_one_ca_that_does_not_hand_them_out_holds_up_no_other(fake: FakeWorld) -> None:
    await fake.issuer("other", server=fake.ca.directory + "?other")
    fake.silent.add(Action.CERTIFICATE)
    for number in range(ORDERS_AT_ONCE):
        await fake.issue(f"web-{number}", f"{number}.example.org")
    await fake.world.advance(timedelta(seconds=10))
    fake.silent.clear()
    await fake.issue("live", "live.example.org", issuer="other", after=timedelta(seconds=10))
    assert await fake.message_of("Ready", "live") == "Certificate is up to date and has not expired"
