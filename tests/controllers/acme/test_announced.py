"""While there is no certificate: the state, the reason and the time of the next step, with few writes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from certwright.acme.protocol.messages import Action
from certwright.controllers.acme.waits import Announced, growing, within
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from controllers.acme.fake_world import FakeWorld

START = datetime(2026, 1, 1, tzinfo=UTC)


def next_step(reason: str) -> datetime:
    """The announced time of the next step; `Waiting until` is the wording of a rate limit."""
    match = re.search(r"(?:next step at|Waiting until) (\S+?Z)", reason)
    assert match is not None, reason
    return datetime.fromisoformat(match[1])


async def test_an_order_in_processing_says_so_and_when_it_is_asked_again(fake: FakeWorld) -> None:
    fake.ca.processing_polls = 10**6
    await fake.issue("web", after=timedelta(seconds=48))
    (order,) = await fake.orders()
    assert order.status.state == "processing"
    assert order.status.reason.startswith("the ACME server is processing the order; next step at ")
    assert "is processing the order; next step at" in await fake.message_of()
    moment, asked = next_step(order.status.reason), fake.ca.counted()[Action.ORDER]
    await fake.world.advance_to(moment - timedelta(seconds=1.1))
    assert fake.ca.counted()[Action.ORDER] == asked
    await fake.world.advance_to(moment)
    assert fake.ca.counted()[Action.ORDER] == asked + 1


async def test_a_day_in_processing_costs_few_questions_and_writes(fake: FakeWorld) -> None:
    fake.ca.processing_polls = 10**6
    before = len(fake.world.recording.object_writes())
    await fake.issue("web", after=timedelta(days=1))
    assert fake.ca.counted()[Action.ORDER] < 80
    assert len(fake.world.recording.object_writes()) - before < 250


@pytest.mark.parametrize("status", [503, 429], ids=["the server is away", "too many, without a time"])
async def test_trouble_names_the_next_step(fake: FakeWorld, status: int) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "", status=status, times=99)
    await fake.issue("web", after=timedelta(seconds=20))
    (order,) = await fake.orders()
    assert order.status.state == ""
    moment, asked = next_step(order.status.reason), fake.ca.counted()[Action.NEW_ORDER]
    assert next_step(await fake.message_of()) == moment
    await fake.world.advance_to(moment + timedelta(seconds=2))
    assert fake.ca.counted()[Action.NEW_ORDER] > asked


async def test_trouble_while_finalizing_says_that_the_order_is_ready(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.FINALIZE, "serverInternal", "db down", status=500, times=99)
    await fake.issue("web", after=timedelta(seconds=20))
    (order,) = await fake.orders()
    assert (order.status.state, order.status.reason[:7]) == ("ready", "db down")
    next_step(order.status.reason)


async def test_a_verdict_that_takes_long_is_announced(fake: FakeWorld) -> None:
    fake.ca.slow.add("a.example.org")
    await fake.issue("web", after=timedelta(minutes=3))
    (challenge,) = await fake.challenges()
    assert challenge.status.state == "processing"
    assert "Waiting for the CA's verdict; next step at" in challenge.status.reason
    assert "Waiting for the CA's verdict; next step at" in await fake.message_of()
    assert next_step(challenge.status.reason) > fake.world.clock.now()


async def test_a_proof_that_cannot_be_shown_names_the_next_try(fake: FakeWorld) -> None:
    fake.shown.refusal = "the page cannot be written"
    await fake.issue("web", after=timedelta(seconds=20))
    (challenge,) = await fake.challenges()
    assert challenge.status.state == "pending"
    assert "the page cannot be written; next step at" in challenge.status.reason
    await fake.world.advance(timedelta(hours=1))
    (challenge,) = await fake.challenges()
    assert challenge.status.reason.endswith("; tried again within 5 minutes")
    writes = len(fake.world.recording.object_writes())
    await fake.world.advance(timedelta(hours=2))
    assert len(fake.world.recording.object_writes()) == writes


async def test_a_certificate_that_comes_at_once_costs_as_many_writes_as_before(fake: FakeWorld) -> None:
    before = len(fake.world.recording.object_writes())
    await fake.issue("web", after=timedelta(minutes=1))
    assert await fake.world.is_ready("web")
    assert len(fake.world.recording.object_writes()) - before == 13


def test_a_time_that_moves_a_little_is_no_news() -> None:
    said = Announced("w", START + timedelta(seconds=100))
    assert not Announced("w", START + timedelta(seconds=108)).is_news(said, START)
    assert Announced("w", START + timedelta(seconds=120)).is_news(said, START)
    assert Announced("v", said.at).is_news(said, START)
    assert Announced("w").is_news(said, START)
    assert said.is_news(None, START)


@pytest.mark.parametrize(
    ("period", "text"),
    [(1, "within 10 seconds"), (10, "within 10 seconds"), (11, "within 1 minute"), (90, "within 5 minutes")],
)
def test_a_period_is_named_by_its_bound(period: int, text: str) -> None:
    assert within(timedelta(seconds=period)) == text


def test_waits_grow_with_the_time_waited() -> None:
    ten, hour = timedelta(seconds=10), timedelta(hours=1)
    assert growing(timedelta(0), at_least=ten, at_most=hour) == ten
    assert growing(timedelta(minutes=10), at_least=ten, at_most=hour) == timedelta(minutes=2)
    assert growing(timedelta(days=9), at_least=ten, at_most=hour) == hour


async def test_an_unknown_state_of_an_authorization_is_waited_out(fake: FakeWorld) -> None:
    fake.ca.authorization_states["a.example.org"] = "levitating"
    await fake.issue("web", after=timedelta(minutes=2))
    (challenge,) = await fake.challenges()
    assert not challenge.status.is_final
    assert 'the CA calls the authorization "levitating"' in challenge.status.reason
    fake.ca.authorization_states.clear()
    await fake.world.advance(timedelta(minutes=2))
    assert await fake.world.is_ready("web")


async def test_a_late_secret_of_a_solver_is_noticed_by_its_event(bare: FakeWorld) -> None:
    rfc2136: dict[str, Any] = {
        "nameserver": "192.0.2.1",
        "tsigKeyName": "k",
        "tsigSecretSecretRef": {"name": "tsig", "key": "key"},
    }
    await bare.issuer(solvers=[{"dns01": {"rfc2136": rfc2136}, "waitInsteadOfSelfCheck": "1h"}])
    await bare.issue("web", after=timedelta(seconds=20))
    status, reason, message = await bare.ready_of()
    assert (status, reason) == ("False", "ErrVerifySolvers")
    assert 'spec.acme.solvers[0]: Secret "tsig" with the TSIG key does not exist' in message
    assert await bare.orders() == []
    data = {"key": b"not base64"}
    meta = SecretMeta(name="tsig", namespace="kube-system")
    await bare.world.create(SECRETS, Secret(metadata=meta, data=data))
    await bare.world.settle()
    assert "the TSIG secret of key" in (await bare.ready_of())[2]
