"""A CA that was away is used again within seconds of its return, and is spared while it is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from certwright.acme.protocol.messages import Action
from certwright.resources import causes
from certwright.resources.retry import read_breaker
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from controllers.acme.fake_world import FakeWorld, fake_world

pytestmark = pytest.mark.every(2)


@pytest.fixture
async def away() -> AsyncIterator[FakeWorld]:
    """A world with a ready issuer whose CA does not answer any more."""
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.is_away = True
        yield fake


async def _ready(fake: FakeWorld, count: int) -> int:
    return sum([await fake.world.is_ready(f"web{number}") for number in range(count)])


@pytest.mark.every(3)
@pytest.mark.parametrize("answers", [0, 503])
@pytest.mark.parametrize("count", [1, 2, 5, 25])
async def test_all_are_ready_within_thirty_seconds_of_an_outage(
    away: FakeWorld, count: int, answers: int
) -> None:
    away.ca.status_while_away = answers
    for number in range(count):
        await away.issue(f"web{number}", f"web{number}.example.org")
    await away.world.advance(timedelta(seconds=10))
    assert not await _ready(away, count)
    away.ca.is_away = False
    await away.world.advance(timedelta(seconds=30))
    assert await _ready(away, count) == count


@pytest.mark.parametrize("minutes", [1, 5, 30])
async def test_after_a_longer_outage_the_wait_is_a_fraction_of_it(away: FakeWorld, minutes: int) -> None:
    for number in range(25):
        await away.issue(f"web{number}", f"web{number}.example.org")
    await away.world.advance(timedelta(minutes=minutes))
    away.ca.is_away = False
    await away.world.advance(timedelta(minutes=minutes) / 2 + timedelta(seconds=30))
    assert await _ready(away, 25) == 25


async def test_a_probe_is_no_attempt_and_probes_grow_rare(away: FakeWorld) -> None:
    for number in range(25):
        await away.issue(f"web{number}", f"web{number}.example.org")
    before = away.ca.counted()
    await away.world.advance(timedelta(hours=1))
    asked = away.ca.counted() - before
    assert 20 <= asked[Action.DIRECTORY] <= 60
    assert sum(asked.values()) - asked[Action.DIRECTORY] <= 12


async def test_orders_and_challenges_in_flight_go_on_after_an_outage(fake: FakeWorld) -> None:
    fake.ca.slow.update(f"web{number}.example.org" for number in range(25))
    for number in range(25):
        await fake.issue(f"web{number}", f"web{number}.example.org")
    await fake.world.advance(timedelta(seconds=2))
    fake.ca.is_away = True
    await fake.world.advance(timedelta(minutes=3))
    fake.ca.is_away = False
    fake.decide()
    await fake.world.advance(timedelta(minutes=2))
    assert await _ready(fake, 25) == 25


async def _announced(fake: FakeWorld, name: str) -> datetime | None:
    record = causes.retry_of(await fake.certificate(name))
    return record.next_attempt if record is not None else None


async def test_announced_times_are_those_of_the_attempts(away: FakeWorld) -> None:
    """Of certificates that wait for the breaker, and of the probes that the issuer's record names."""
    await away.issue("first", "first.example.org", after=timedelta(minutes=2))
    for number in range(25):
        await away.issue(f"web{number}", f"web{number}.example.org")
    issuer = await away.world.get(CLUSTER_ISSUERS, "acme")
    for _ in range(5):
        record = read_breaker(issuer.metadata.annotations)
        assert record is not None
        assert record.next_probe is not None
        probes = away.ca.counted()[Action.DIRECTORY]
        await away.world.advance_to(record.next_probe - timedelta(seconds=2))
        assert away.ca.counted()[Action.DIRECTORY] == probes
        await away.world.advance(timedelta(seconds=4))
        assert away.ca.counted()[Action.DIRECTORY] == probes + 1
        issuer = await away.world.get(CLUSTER_ISSUERS, "acme")
    # Nothing is announced of what depends on the CA.
    assert {await _announced(away, f"web{number}") for number in range(25)} == {None}
    away.ca.is_away = False
    seen: dict[str, datetime] = {}
    for _ in range(200):
        await away.world.advance(timedelta(seconds=1))
        for number in range(25):
            if (at := await _announced(away, f"web{number}")) is not None:
                seen.setdefault(f"web{number}", at)
    made = {request.metadata.name: request.metadata.creation_timestamp for request in await away.requests()}
    assert await _ready(away, 25) == 25
    for name, at in seen.items():
        begun = made[f"{name}-1"]
        assert begun is not None
        assert abs(begun - at) <= timedelta(seconds=2)


async def test_a_record_is_removed_when_the_ca_works_again(away: FakeWorld) -> None:
    await away.issue("web0", "web0.example.org", after=timedelta(minutes=1))
    issuer = await away.world.get(CLUSTER_ISSUERS, "acme")
    record = read_breaker(issuer.metadata.annotations)
    assert record is not None
    assert (record.state, record.reason) == ("Open", "IssuerUnavailable")
    away.ca.is_away = False
    await away.world.advance(timedelta(minutes=1))
    issuer = await away.world.get(CLUSTER_ISSUERS, "acme")
    assert read_breaker(issuer.metadata.annotations) is None
    assert issuer.metadata.generation == 1


async def test_what_a_tenant_writes_delays_no_issuer(fake: FakeWorld) -> None:
    """A tenant may write the status of Certificates, and Orders."""
    for number in range(5):
        await fake.issue(f"web{number}", f"web{number}.example.org")
    await fake.world.advance(timedelta(minutes=1))
    await fake.world.stop_controllers()
    issuing = {"type": "Issuing", "status": "False", "reason": "IssuerUnavailable", "message": "it is away"}
    now = fake.world.clock.now().replace(microsecond=0)
    status = {"lastFailureTime": now, "failedIssuanceAttempts": 9, "conditions": [issuing]}
    for number in range(5):
        await fake.world.client.patch(
            CERTIFICATES, f"web{number}", "default", {"status": status}, subresource="status"
        )
    await fake.start()
    await fake.issue("good", "good.example.org", after=timedelta(seconds=2))
    assert await fake.world.is_ready("good")


async def test_an_issuer_whose_ca_demands_an_action_is_not_ready_and_says_what_to_do(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "userActionRequired", "agree to the new terms", status=403, times=1)
    await fake.issue(after=timedelta(seconds=10))
    status, _, message = await fake.ready_of()
    assert status == "False"
    assert "agree to the new terms" in message
    assert "do what the CA requires" in message
    await fake.world.advance(timedelta(minutes=15))
    assert (await fake.ready_of())[0] == "True"
    assert await fake.world.is_ready("web")
