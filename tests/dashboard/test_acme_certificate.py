"""The page of a certificate of an ACME server: its order, its challenges, and what a renewal waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from certwright.acme.protocol.messages import Action
from certwright.app.dashboard import revoke
from certwright.diagnosis import related
from certwright.kube.api.core import SECRETS
from certwright.kube.client.listing import PAGE as PAGE_OF_A_LIST
from certwright.pki.certificates import read_certificate
from certwright.resources.table import ORDERS
from controllers.acme.fake_world import FakeWorld, fake_world
from support.acme_world import acme_world
from support.pebble import Pebble, running_pebble
from support.visitor import visitor
from support.world import World

PAGE = "/ui/certificates/default/web"


@pytest.fixture(scope="module")
def pebble() -> Iterator[Pebble]:
    """A real ACME server."""
    with running_pebble() as running:
        yield running


@pytest.fixture
async def fake() -> AsyncIterator[FakeWorld]:
    """A certwright at a fake CA, with the issuer `acme`."""
    async with fake_world() as made:
        await made.issuer()
        yield made


def of_another_order(name: str) -> dict[str, Any]:
    """A challenge that the controllers leave alone."""
    owner = {"apiVersion": ORDERS.api_version, "kind": "Order", "name": "other", "uid": "other"}
    spec = {
        "url": "https://ca.example/1",
        "authorizationURL": "https://ca.example/2",
        "dnsName": "other.example.org",
        "type": "HTTP-01",
        "token": "token",
        "key": "key",
        "solver": {"http01": {"ingress": {}}},
        "issuerRef": {"name": "of-others", "group": "others.example"},
    }
    meta = {"name": name, "namespace": "default", "ownerReferences": [owner]}
    return {"metadata": meta, "spec": spec}


async def test_the_chain_follows_an_issuance_without_a_list_of_orders(fake: FakeWorld) -> None:
    admin = await visitor(fake.world)
    fake.ca.slow.add("a.example.org")
    for number in range(PAGE_OF_A_LIST):
        # Before those of the order in a list, which is in the order of names.
        await fake.world.client.create(related.CHALLENGES, of_another_order(f"a{number}"))
    await fake.issue("web", "a.example.org", "b.example.org", after=timedelta(minutes=1))
    pending = await admin.get(PAGE)
    expected = (
        "Order pending: a.example.org: Waiting for the CA's verdict",
        "Challenge a.example.org by HTTP-01: processing",
        "Challenge b.example.org by HTTP-01: valid",
    )
    assert [words for words in expected if words not in pending.text] == []
    assert pending.html.count('aria-current="step"') == 1
    fake.decide()
    await fake.world.advance(timedelta(minutes=5))
    issued = await admin.get(PAGE)
    assert "Order valid" in issued.text
    assert "Signed by ClusterIssuer acme" in issued.text
    assert "Issuing certificate as Secret does not exist" in issued.text
    assert "67 seconds" in issued.text
    assert 'aria-current="step"' not in issued.html
    assert [
        request for request in admin.requests if "/orders?" in request or request.endswith("/orders")
    ] == []


async def test_a_renewal_that_has_to_wait_says_until_when(fake: FakeWorld) -> None:
    admin = await visitor(fake.world)
    fake.ca.refuse(Action.NEW_ORDER, "rateLimited", status=429, retry_after="7200")
    await fake.issue("web", after=timedelta(minutes=1))
    assert "Retry now" in (await admin.get(PAGE)).text
    done = await admin.post(f"{PAGE}/renew")
    assert "certificate default/web waits until 2026-01-01T02:" in done.text
    assert "renew does not override that." in done.text


async def test_a_certificate_is_revoked_at_its_ca(pebble: Pebble) -> None:
    async with acme_world(pebble) as world:
        await world.issuer()
        await world.certificate("web", "web.example.org")
        await world.ready("web")
        secret = await world.client.get(SECRETS, "web", "default")
        serial = f"{read_certificate(secret.data['tls.crt']).serial_number:x}"
        server = SimpleNamespace(handle=world.recording.handler)
        parts = SimpleNamespace(recording=world.recording, server=server, clock=world.clock, on_close=[])
        admin = await visitor(cast(World, parts), revoke=revoke)
        done = await admin.submit(await admin.get(f"{PAGE}/revoke"), "/revoke", reason="superseded")
        assert f"Certificate {serial} of default/web is revoked." in done.text
        assert pebble.status_of(serial)["Status"] == "Revoked"
        await admin.site.close()
