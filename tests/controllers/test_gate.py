"""The circuit in a whole certwright: with somebody else's kind of issuer, which fails for everybody."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.controllers.retry import circuits
from certwright.kube.api import conditions
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.scene import make_certificate
from controllers.things import mark
from support.world import World

_HOUR = timedelta(hours=1)
_THING = IssuerReference(name="thing", kind="Thing", group="example.com")


async def _ask(world: World, name: str) -> None:
    await world.create(CERTIFICATES, make_certificate(name, "thing", issuer_ref=_THING))
    await world.settle()


async def _fail(world: World, *names: str) -> None:
    for name in names:
        await _ask(world, name)
        await mark(world, f"{name}-1", "Failed")


async def _issuing(world: World, name: str) -> tuple[str, str]:
    condition = conditions.find((await world.certificate(name)).status.conditions, "Issuing")
    return (condition.status, condition.message) if condition is not None else ("", "")


async def _count(world: World) -> int:
    return len((await world.client.list(CERTIFICATE_REQUESTS)).items)


@pytest.fixture
async def out(world: World) -> World:
    """Three certificates have failed at the issuer, and twenty more have asked for one."""
    await _fail(world, "a", "b", "c")
    for number in range(20):
        await _ask(world, f"web{number}")
    return world


async def test_breakers_of_issuers_that_never_issued_go_with_their_certificates(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuits, "_MANY", 5)
    await world.start_controllers()
    assert world.controllers is not None
    gate = world.controllers.wiring.gate

    async def come_and_go(numbers: range) -> int:
        for number in numbers:
            reference = IssuerReference(name=f"thing{number}", kind="Thing", group="example.com")
            await world.create(CERTIFICATES, make_certificate("churn", "thing", issuer_ref=reference))
            await world.settle()
            await world.client.delete(CERTIFICATES, "churn", "default")
            await world.settle()
        return len(gate.circuits.standings())

    await _ask(world, "stays")
    # The attempts of an hour count, whatever became of them.
    assert await come_and_go(range(10)) == 11
    await world.advance(2 * _HOUR)
    assert await come_and_go(range(10, 13)) < 11
    assert "thing" in {circuit.name for circuit in gate.circuits.standings()}


async def test_those_that_wait_for_an_issuer_say_why_and_the_first_one_says_until_when(out: World) -> None:
    status, message = await _issuing(out, "web7")
    assert status == "False"
    assert 'because Thing "thing" is failing; one certificate at a time tries it' in message
    # Its turn depends on what becomes of the others: no time is better than a wrong one.
    assert "Next attempt at" not in message
    _, first = await _issuing(out, "web0")
    assert "Next attempt at 2026-01-01T00:05:00Z; because" in first
    assert await _count(out) == 3


async def test_one_at_a_time_tries_it(out: World) -> None:
    await out.advance(timedelta(minutes=6))
    assert await _count(out) == 4


async def test_a_failing_name_stops_nobody(world: World) -> None:
    await _fail(world, "a", "b")
    await _ask(world, "web")
    assert (await _issuing(world, "web"))[0] == "True"


async def test_a_restart_changes_nothing(out: World) -> None:
    await out.start_controllers()
    assert await _count(out) == 3
    assert 'because Thing "thing"' in (await _issuing(out, "web7"))[1]
    assert out.controllers is not None
    text = out.controllers.metrics.take()().decode()
    assert 'certwright_issuer_circuit_open{issuer_name="thing",issuer_kind="Thing",namespace=""} 1' in text


async def test_zero_switches_it_off(world: World) -> None:
    await world.start_controllers(issuer_attempts_per_hour=0)
    await _fail(world, "a", "b", "c")
    await _ask(world, "web")
    assert (await _issuing(world, "web"))[0] == "True"


async def test_fewer_than_none_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="negative"):
        await world.start_controllers(issuer_attempts_per_hour=-1)
