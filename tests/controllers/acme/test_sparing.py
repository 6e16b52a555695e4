"""An ACME CA that fails as a whole is asked by few, however many certificates want it."""

from __future__ import annotations

from datetime import timedelta

from certwright.acme.protocol.messages import Action
from certwright.resources.table import CERTIFICATES
from controllers.acme.fake_world import FakeWorld, fake_world

_OUT = "serverInternal"
_COUNT = 40


async def _many(fake: FakeWorld, count: int = _COUNT) -> None:
    for number in range(count):
        await fake.issue(f"web{number}", f"web{number}.example.com")


def _placed(fake: FakeWorld) -> int:
    return fake.ca.counted()[Action.NEW_ORDER]


async def _ready(fake: FakeWorld) -> int:
    found = [await fake.certificate(f"web{number}") for number in range(_COUNT)]
    return sum(1 for one in found if one.status.revision)


async def test_a_ca_that_is_out_gets_twelve_orders_an_hour() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=10**6)
        await _many(fake)
        await fake.world.settle()
        for hour in range(1, 6):
            await fake.world.advance(timedelta(hours=1))
            assert _placed(fake) <= 12 * hour
        said = (await fake.certificate("web39")).status.conditions
        assert any(
            'because ClusterIssuer "acme" fails for several certificates' in one.message for one in said
        )
        text = fake.world.controllers.metrics.take()().decode() if fake.world.controllers else ""
        assert (
            'certwright_issuer_circuit_open{issuer_name="acme",issuer_kind="ClusterIssuer",namespace=""} 1'
            in text
        )


async def test_when_it_is_back_all_get_their_certificates() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=10)
        await _many(fake)
        await fake.world.advance(timedelta(hours=5))
        assert await _ready(fake) == _COUNT


async def test_a_restart_in_the_middle_asks_no_more() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.refuse(Action.NEW_ORDER, _OUT, status=503, times=10**6)
        await _many(fake)
        await fake.world.advance(timedelta(hours=2))
        before = _placed(fake)
        await fake.start()
        await fake.world.settle()
        assert _placed(fake) - before <= 6
        await fake.world.advance(timedelta(hours=1))
        assert _placed(fake) - before <= 12
        assert len((await fake.world.client.list(CERTIFICATES)).items) == _COUNT
