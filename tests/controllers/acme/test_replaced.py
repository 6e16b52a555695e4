"""Challenges that somebody deletes while they are needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.acme.protocol.messages import Action
from certwright.acme.solvers.contract import SolverError, Task
from certwright.kube.api import conditions
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import ObjectMeta
from certwright.resources.acme import Challenge
from certwright.resources.table import CHALLENGES, ORDERS
from controllers.acme.fake_world import HTTP01, FakeWorld, Shown, fake_world
from controllers.crashes import Webhook

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
    fake: FakeWorld,
) -> None:
    await fake.issuer(solvers=[{**HTTP01, "waitInsteadOfSelfCheck": "1m"}])
    await fake.issue("web", "a.example.org", "b.example.org")
    await fake.world.advance(A_WHILE)
    needed = await fake.challenges()
    await leave_failed(fake, needed[0])
    await fake.world.client.delete(CHALLENGES, needed[0].metadata.name, "default")
    await fake.world.advance(A_WHILE)
    assert await shown_of(fake) == [
        ("a.example.org", "pending"),
        ("b.example.org", "pending"),
        ("old", "errored"),
    ]
    await fake.world.advance(timedelta(minutes=2))
    assert await fake.world.is_ready("web")


async def test_one_that_is_made_again_is_tried_like_a_new_one() -> None:
    broken = Broken()
    async with fake_world(responder=broken) as fake:
        await fake.issuer()
        await fake.issue()
        await fake.world.advance(timedelta(hours=1))
        before = broken.tries
        (challenge,) = await fake.challenges()
        await fake.world.client.delete(CHALLENGES, challenge.metadata.name, "default")
        await fake.world.advance(timedelta(seconds=20))
        assert broken.tries - before >= 3


async def test_one_is_not_made_again_once_the_server_has_the_signing_request(fake: FakeWorld) -> None:
    fake.ca.processing_polls = 6
    await fake.issuer()
    await fake.issue()
    await fake.world.advance(timedelta(seconds=1))
    assert fake.ca.counted()[Action.FINALIZE] == 1
    (challenge,) = await fake.challenges()
    await fake.world.client.delete(CHALLENGES, challenge.metadata.name, "default")
    await fake.world.settle()
    assert await fake.challenges() == []
    await fake.world.advance(timedelta(minutes=1))
    assert await fake.world.is_ready("web")
    assert fake.ca.counted()[Action.CHALLENGE] == 1


def without_owner(body: dict[str, Any]) -> None:
    """Removes the owners of an object, as an admission webhook may."""
    body["metadata"].pop("ownerReferences", None)


@pytest.mark.parametrize("kind", [ORDERS, CHALLENGES], ids=["an Order", "a Challenge"])
async def test_what_loses_its_owner_is_deleted_and_made_again_every_ten_minutes(
    fake: FakeWorld, kind: AnyKind
) -> None:
    await fake.issuer()
    webhook = Webhook(fake.world, kind.plural, without_owner)
    await fake.issue("web", "a.example.org")
    await fake.world.advance(timedelta(minutes=55))
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
