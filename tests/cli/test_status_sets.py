"""`certwright status` of a certificate whose issuer is a set, and of the set: which member signs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from certwright.cli.commands.status import report, set_report
from certwright.diagnosis import issuers, related
from certwright.diagnosis.related import Json
from certwright.kube.api.errors import Forbidden
from certwright.kube.api.kinds import Kind
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
    certificate = await world.client.get(related.CERTIFICATES, "web", "default")
    objects = await related.read_related(world.client, certificate)
    return "\n".join(report(objects, [], datetime(2026, 1, 1, tzinfo=UTC)))


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
        orders = {order.spec.issuer_ref.name: order.metadata.name for order in await fake.orders()}
        assert orders["second"] in text
        assert orders["acme"] not in text


async def set_shown(world: World, kind: Kind[Json] = related.ISSUER_SETS, name: str = "both") -> str:
    """What the command prints of the set."""
    obj = await world.client.get(kind, name, "default" if kind.namespaced else "")
    obj["kind"] = kind.kind
    requests = (await world.client.list(related.REQUESTS, "default")).items
    members = await issuers.members_of(world.client, obj, requests)
    status = issuers.SetStatus(obj, members, ("shop/web",))
    assert len(issuers.set_as_json(status)["members"]) == len(members)
    return "\n".join(set_report(status, [], world.clock.now()))


async def test_the_status_of_a_set_names_the_state_of_each_member(world: World) -> None:
    await world.create(ISSUERS, make_ca_issuer("broken", "missing"))
    await world.create(ISSUER_SETS, make_set("broken", "absent", "ca"))
    await Scene(world).issue(issuer_ref=SET)
    first, *lines = (await set_shown(world)).splitlines()
    assert first == "IssuerSet both: ready; Issuer ca signs; 1 certificate waiting or being issued."
    rows = [line.split() for line in lines]
    assert ["Issuer", "absent", "missing", "it", "does", "not", "exist"] in rows
    assert ["Issuer", "ca", "ready", "0s"] in rows
    assert ["Issuer", "broken", "not", "ready"] in [row[:4] for row in rows]


async def test_the_status_of_a_set_names_when_it_returns(world: World) -> None:
    await world.create(ISSUER_SETS, make_set("late", "ca"))
    await world.settle()
    await world.create(ISSUERS, make_ca_issuer("late", "ca"))
    await world.settle()
    assert "; the set returns to a preferred member at " in (await set_shown(world)).splitlines()[0]


async def test_the_status_of_a_set_without_a_working_member_has_a_fix(world: World) -> None:
    await world.create(ISSUER_SETS, make_set("absent"))
    await world.settle()
    first, second, *_ = (await set_shown(world)).splitlines()
    assert first.startswith("IssuerSet both: not ready: no member can sign")
    assert second == "What to do: correct one of the members, or add another to spec.issuers."


async def test_a_member_that_may_not_be_read_is_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create(ISSUER_SETS, make_set("ca"))
    await world.settle()

    async def refuse(*arguments: object) -> None:
        raise Forbidden(str(arguments[2]))

    monkeypatch.setattr(related, "get_or_none", refuse)
    assert "you may not read it" in await set_shown(world)


async def test_a_failing_member_has_the_reason() -> None:
    async with set_world("acme", "second") as fake:
        fake.ca.is_away = True
        await issue(fake, "a", "b", "c", "d")
        await fake.world.advance(timedelta(seconds=30))
        text = await set_shown(fake.world, related.CLUSTER_ISSUER_SETS, "all")
        assert "ClusterIssuer acme     failing" in text
        assert "ClusterIssuerSet all: ready; ClusterIssuer second signs" in text
