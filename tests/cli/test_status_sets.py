"""`certwright status certificate` of a certificate whose issuer is a set: which member signs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from certwright.cli import related
from certwright.cli.commands.status import report
from certwright.resources.table import ISSUER_SETS, ISSUERS
from controllers.scene import Scene, make_ca_issuer
from controllers.sets.test_acme_members import issue, set_world
from controllers.sets.test_members import SET, make_set
from support.world import World, make_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world with a CA issuer."""
    async with make_world() as made:
        await Scene(made).add_ca()
        yield made


async def shown(world: World) -> str:
    """What the command prints of the Certificate `web`."""
    found = await world.client.get(related.CERTIFICATES, "web", "default")
    around = await related.around(world.client, found)
    return "\n".join(report(around, [], datetime(2026, 1, 1, tzinfo=UTC)))


async def test_the_member_that_signed_and_the_active_one_are_named(world: World) -> None:
    await world.create(ISSUERS, make_ca_issuer("broken", "missing"))
    await world.create(ISSUER_SETS, make_set("broken", "ca"))
    await Scene(world).issue(issuer_ref=SET)
    text = await shown(world)
    assert "Sent to" in text
    assert "Issuer ca of IssuerSet both" in text
    assert "Active" in text
    assert "of another program" not in text


async def test_a_certificate_that_waits_for_its_set_says_why(world: World) -> None:
    await world.create(ISSUERS, make_ca_issuer("broken", "missing"))
    await world.create(ISSUER_SETS, make_set("broken"))
    await Scene(world).issue(issuer_ref=SET)
    first = (await shown(world)).splitlines()[0]
    assert "waiting for IssuerSet both, which is not ready: " in first
    assert 'spec.issuers[0]: Issuer "broken" is not ready' in first


async def test_a_set_that_does_not_exist_is_reported(world: World) -> None:
    await Scene(world).issue(issuer_ref=SET)
    text = await shown(world)
    assert 'Referenced "IssuerSet" not found' in text.splitlines()[0]
    assert "IssuerSet both (does not exist, or you may not read it)" in text


async def test_the_order_at_the_member_that_signs_is_shown() -> None:
    async with set_world("acme", "second") as fake:
        fake.ca.is_away = True
        await issue(fake, "web")
        await fake.world.advance(timedelta(seconds=10))
        text = await shown(fake.world)
        orders = {one.spec.issuer_ref.name: one.metadata.name for one in await fake.orders()}
        assert orders["second"] in text
        assert orders["acme"] not in text
