"""What an ACME server refuses decides about the Certificate's next attempt."""

from __future__ import annotations

from datetime import timedelta

from certwright.acme.protocol.messages import Action
from certwright.kube.api import conditions
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from controllers.acme.fake_world import FakeWorld

HOUR = timedelta(hours=1)


async def reason_of(fake: FakeWorld) -> str:
    condition = conditions.find((await fake.certificate()).status.conditions, "Issuing")
    return condition.reason if condition else ""


async def change(fake: FakeWorld, *names: str) -> None:
    await fake.world.client.patch(CERTIFICATES, "web", "default", {"spec": {"dnsNames": list(names)}})
    await fake.world.advance(timedelta(minutes=1))


async def test_a_refused_name_waits_for_the_spec_and_names_the_field(fake: FakeWorld) -> None:
    await fake.issuer()
    fake.ca.refuse(Action.NEW_ORDER, "rejectedIdentifier", "not this one")
    await fake.issue("web", "bad.example.org")
    await fake.world.advance(31 * HOUR)
    assert fake.ca.counted()[Action.NEW_ORDER] == 1
    assert await reason_of(fake) == "InvalidRequest"
    message = await fake.message_of()
    assert "not this one" in message
    assert "change spec.dnsNames: this CA refuses one of them" in message
    await change(fake, "good.example.org")
    assert fake.ca.counted()[Action.NEW_ORDER] == 2
    assert await fake.world.is_ready("web")


async def test_a_changed_issuer_is_asked_again_at_the_designs_time(fake: FakeWorld) -> None:
    await fake.issuer()
    fake.ca.refuse(Action.NEW_ORDER, "rejectedIdentifier", "not this one")
    await fake.issue()
    await fake.world.advance(timedelta(minutes=5))
    change = {"spec": {"acme": {"email": "other@example.org"}}}
    await fake.world.client.patch(CLUSTER_ISSUERS, "acme", "", change)
    await fake.world.advance(timedelta(minutes=54))
    assert fake.ca.counted()[Action.NEW_ORDER] == 1
    await fake.world.advance(timedelta(minutes=2))
    assert await fake.world.is_ready("web")


async def test_a_proof_that_failed_is_tried_again_after_an_hour(fake: FakeWorld) -> None:
    await fake.issuer()
    fake.ca.refuse(Action.NEW_ORDER, "dns", "no such name")
    await fake.issue()
    await fake.world.advance(timedelta(minutes=59))
    assert fake.ca.counted()[Action.NEW_ORDER] == 1
    assert await reason_of(fake) == "Failed"
    await fake.world.advance(timedelta(minutes=2))
    assert await fake.world.is_ready("web")
