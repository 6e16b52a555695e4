"""Venafi issuers as members of a set: an order that the server has not accepted goes to another member."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.controllers.requests import members
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.resources.issuer import IssuerSpec, read_member
from certwright.resources.names import VENAFI_PICKUP_ID
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUER_SETS, ISSUERS
from controllers.scene import make_certificate, make_issuer
from controllers.sets.test_members import SET, make_set
from issuers.venafi.conftest import secret_of, spec_of
from issuers.venafi.live import add_issuer
from issuers.venafi.test_controllers import has_removed_key, is_pending, is_ready
from support.venafi.server import FakeVenafi
from support.world import LiveWorld, eventually, live_world

AWAY: tuple[int, dict[str, str], bytes] = (503, {}, b"")
PLACE = "vedsdk/certificates/request"


@pytest.fixture
async def world(trusted: None, fake: FakeVenafi) -> AsyncIterator[LiveWorld]:
    """A world with a set of a TPP and a self-signed issuer."""
    async with live_world() as made:
        await made.create(ISSUERS, make_issuer("self"))
        await add_issuer(made, fake)
        await made.create(ISSUER_SETS, make_set("venafi", "self"))
        await eventually(lambda: is_ready(made))
        yield made


async def add(world: LiveWorld, name: str = "web", **spec: Any) -> None:
    """A Certificate of the set."""
    made = make_certificate(name, "", common_name=f"{name}.example.com", issuer_ref=SET, **spec)
    await world.create(CERTIFICATES, msgspec.structs.replace(made))


async def request(world: LiveWorld) -> CertificateRequest:
    (only_request,) = (await world.client.list(CERTIFICATE_REQUESTS, "default")).items
    return only_request


async def member(world: LiveWorld) -> str:
    """The member that its request was sent to."""
    chosen = read_member((await request(world)).metadata.annotations)
    return chosen.name if chosen is not None else ""


async def test_an_order_that_the_server_does_not_accept_goes_to_another_member(
    world: LiveWorld, fake: FakeVenafi
) -> None:
    fake.state.answers[PLACE] = AWAY
    await add(world)
    await eventually(lambda: world.has_issued("web"))
    assert await member(world) == "self"
    assert VENAFI_PICKUP_ID not in (await request(world)).metadata.annotations


async def test_a_certificate_of_a_set_takes_nine_writes(world: LiveWorld) -> None:
    await eventually(lambda: is_active(world))
    await world.settle()
    world.recording.writes.clear()
    await add(world)
    await eventually(lambda: world.has_issued("web"))
    await eventually(lambda: has_removed_key(world))
    assert await member(world) == "venafi"
    assert len(world.recording.object_writes()) <= 9
    assert len(world.recording.event_writes()) <= 4


async def is_active(world: LiveWorld) -> bool:
    """Whether all members work, and the first is the active one."""
    status = (await world.get(ISSUER_SETS, "both")).status
    ready = conditions.find(status.conditions, "Ready")
    is_first = status.active is not None and status.active.name == "venafi"
    return is_first and ready is not None and ready.reason == "AllMembersReady"


async def test_an_order_that_the_server_has_accepted_stays_for_a_while(
    world: LiveWorld, fake: FakeVenafi, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.state.polls = 100
    await add(world)
    await eventually(lambda: is_pending(world))
    fake.state.answers["vedsdk/certificates/retrieve"] = AWAY
    await world.client.patch(ISSUERS, "venafi", "default", {"spec": {"venafi": {"zone": "Nowhere"}}})
    await eventually(lambda: is_not_ready(world))
    assert await member(world) == "venafi"
    monkeypatch.setattr(members, "PATIENCE", timedelta(seconds=1))
    await world.start_controllers()
    await eventually(lambda: world.has_issued("web"))
    assert await member(world) == "self"


async def test_a_request_that_no_other_member_can_sign_says_why_and_is_sent_again(
    world: LiveWorld, fake: FakeVenafi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "AVOIDED_FOR", timedelta(seconds=2))
    await world.client.delete(ISSUERS, "self", "default")
    fake.state.answers[PLACE] = AWAY
    await add(world)
    await eventually(lambda: is_pending(world))
    ready = conditions.find((await request(world)).status.conditions, "Ready")
    assert ready is not None
    assert 'Issuer "venafi" has failed this request or limits it: https://' in ready.message
    assert "answered 503" in ready.message
    fake.state.answers.clear()
    await eventually(lambda: world.has_issued("web"))
    assert await member(world) == "venafi"
    assert len(fake.state.placed) == 1


async def test_two_venafi_servers_do_not_mistake_each_others_orders(
    world: LiveWorld, fake: FakeVenafi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "PATIENCE", timedelta(seconds=0))
    spec, secret = spec_of("cloud", fake), secret_of("cloud", fake)
    assert spec.cloud is not None
    ref = msgspec.structs.replace(spec.cloud.api_token_secret_ref, name="key")
    spec = msgspec.structs.replace(spec, cloud=msgspec.structs.replace(spec.cloud, api_token_secret_ref=ref))
    await world.create(SECRETS, Secret(metadata=SecretMeta(name="key", namespace="default"), data=secret))
    await world.create(ISSUERS, make_issuer("cloud", IssuerSpec(venafi=spec)))
    await world.client.patch(
        ISSUER_SETS, "both", "default", {"spec": {"issuers": [{"name": "venafi"}, {"name": "cloud"}]}}
    )
    fake.state.polls = 3
    await add(world)
    await eventually(lambda: is_pending(world))
    fake.state.polls = 0
    await world.client.delete(ISSUERS, "venafi", "default")
    await eventually(lambda: world.has_issued("web"))
    assert await member(world) == "cloud"
    assert (await request(world)).metadata.annotations[VENAFI_PICKUP_ID] == fake.state.placed[-1]
    assert len(fake.state.placed) == 2


async def is_not_ready(world: LiveWorld) -> bool:
    """Whether the issuer does not work."""
    return not await is_ready(world)
