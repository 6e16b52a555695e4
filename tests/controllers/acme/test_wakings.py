"""Who is woken by what: nobody for nothing, and everybody who can go on."""

from __future__ import annotations

import re
from datetime import timedelta

from certwright.acme.protocol.messages import Action
from certwright.controllers.cache.shard_filter import is_own_write, working_on
from certwright.kube.api.meta import ObjectKey
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CHALLENGES, ORDERS
from controllers.acme.fake_world import FakeWorld, fake_world

KEY = ObjectKey("default", "web")
NUMBER = 5


def runs(fake: FakeWorld) -> dict[str, int]:
    """How often each controller has looked at an object so far."""
    assert fake.world.controllers is not None
    text = fake.world.controllers.metrics.take()().decode()
    counts = re.findall(r'sync_call_count\{controller="(\w+)"\} (\d+)', text)
    return {name: int(number) for name, number in counts}


async def test_an_issuance_takes_no_pass_for_nothing(fake: FakeWorld) -> None:
    await fake.issuer()
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
        await fake.issue("web", *(f"{number}.example.org" for number in range(20)))
        await fake.world.advance(timedelta(seconds=20))
        assert await fake.world.is_ready("web")
        # As many as for one of one name.
        assert runs(fake)["orders"] - before["orders"] <= 4


async def test_a_challenge_that_somebody_deletes_is_made_again(fake: FakeWorld) -> None:
    fake.ca.sees = lambda _found, _kind: False
    fake.silent.add(Action.CHALLENGE)
    await fake.issuer()
    await fake.issue("web")
    (challenge,) = await fake.challenges()
    await fake.world.client.delete(CHALLENGES, challenge.metadata.name, "default")
    await fake.world.settle()
    (again,) = await fake.challenges()
    assert again.metadata.uid != challenge.metadata.uid


async def test_an_order_that_somebody_deletes_is_made_again(fake: FakeWorld) -> None:
    fake.silent.add(Action.CHALLENGE)
    await fake.issuer()
    await fake.issue("web")
    (order,) = await fake.orders()
    await fake.world.client.delete(ORDERS, order.metadata.name, "default")
    await fake.world.settle()
    (again,) = await fake.orders()
    assert again.metadata.uid != order.metadata.uid


def test_own_writes_are_those_of_the_object_that_is_worked_on() -> None:
    assert not is_own_write(CERTIFICATES, KEY)
    with working_on(CERTIFICATES, KEY):
        assert is_own_write(CERTIFICATES, KEY)
        assert not is_own_write(CERTIFICATE_REQUESTS, KEY)
        assert not is_own_write(CERTIFICATES, ObjectKey("default", "other"))
    assert not is_own_write(CERTIFICATES, KEY)
