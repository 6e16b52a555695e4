"""What a set gives to those who may write its requests, Orders and annotations: no more than its members."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from certwright.kube.api.errors import Forbidden
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity
from certwright.resources.issuer import write_member
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUER_SETS, ISSUERS, ORDERS
from controllers.acme.fake_world import FakeWorld
from controllers.acme.test_provenance import ISSUER, Tenant, _json, owner_of
from controllers.external_issuer import grant, signer_rule
from controllers.scene import Scene, make_issuer
from controllers.sets.test_acme_members import issue, ordered, second_of, set_world
from controllers.sets.test_members import SET, make_set, signer_of
from support.world import World, make_world

BY_HAND = "*,-certificaterequests-approver"
APPROVER = Identity("approver", groups=("system:authenticated",))


@pytest.fixture
async def fake() -> AsyncIterator[FakeWorld]:
    """A world with a set of one of two ACME servers."""
    async with set_world("acme") as made:
        yield made


@pytest.fixture
async def by_hand() -> AsyncIterator[World]:
    """A world whose requests are not approved automatically."""
    async with make_world(enabled=BY_HAND) as made:
        await made.create(ISSUERS, make_issuer("root"))
        await made.create(ISSUERS, make_issuer("other"))
        await made.create(ISSUER_SETS, make_set("root"))
        yield made


async def approve(world: World, user: Identity) -> None:
    """Approve the request `web-1` as that user."""
    condition = {"type": "Approved", "status": "True", "reason": "me", "message": "me"}
    client = Client(LocalTransport(world.recording.handle, user), user_agent="test")
    status = {"status": {"conditions": [condition]}}
    await client.patch(CERTIFICATE_REQUESTS, "web-1", "default", status, subresource="status")
    await world.settle()


async def let_approve(world: World, *signers: str) -> None:
    """Grant the approver the verb on these signers, and the status of requests."""
    status = {
        "verbs": ["patch"],
        "apiGroups": ["cert-manager.io"],
        "resources": ["certificaterequests/status"],
    }
    subject = {"kind": "User", "name": "approver", "apiGroup": "rbac.authorization.k8s.io"}
    await grant(world, "approver", [signer_rule("approve", *signers), status], subject)


async def test_the_right_to_approve_for_the_members_is_none_for_the_set(by_hand: World) -> None:
    await let_approve(by_hand, "issuers.cert-manager.io/*")
    await Scene(by_hand).issue(issuer_ref=SET)
    with pytest.raises(Forbidden, match="does not have permissions to set approved/denied conditions"):
        await approve(by_hand, APPROVER)
    assert not await by_hand.is_ready("web")


@pytest.mark.parametrize("signer", ["issuersets.certwright.io/*", "issuersets.certwright.io/default.both"])
async def test_the_right_to_approve_for_the_set_is_enough(by_hand: World, signer: str) -> None:
    await let_approve(by_hand, signer)
    await Scene(by_hand).issue(issuer_ref=SET)
    await approve(by_hand, APPROVER)
    assert await by_hand.is_ready("web")


async def test_nothing_is_sent_to_a_member_before_the_approval(by_hand: World) -> None:
    scene = Scene(by_hand)
    await scene.issue(issuer_ref=SET)
    (request,) = await scene.requests()
    assert request.status.conditions == ()
    assert not await by_hand.is_ready("web")


async def test_the_annotation_of_a_request_chooses_no_issuer_outside_the_set(by_hand: World) -> None:
    scene = Scene(by_hand)
    await let_approve(by_hand, "issuersets.certwright.io/*")
    await scene.issue(issuer_ref=SET)
    for value in (write_member(IssuerReference(name="other")), {"certwright.io/issuer-set-member": "{"}):
        patch = {"metadata": {"annotations": value}}
        await by_hand.client.patch(CERTIFICATE_REQUESTS, "web-1", "default", patch)
    await approve(by_hand, APPROVER)
    assert await signer_of(scene) == "root"


async def test_the_annotation_of_a_certificate_is_not_copied_to_its_request(
    scene: Scene, world: World
) -> None:
    await world.create(ISSUERS, make_issuer("other"))
    await world.create(ISSUER_SETS, make_set("ca", "other"))
    await scene.issue(issuer_ref=SET)
    note = {"metadata": {"annotations": write_member(IssuerReference(name="other"))}}
    await world.client.patch(CERTIFICATES, "web", "default", note)
    await scene.change_spec("web", dnsNames=["other.example.com"])
    notes = (await scene.requests())[-1].metadata.annotations
    assert notes.items() >= write_member(IssuerReference(name="ca")).items()


async def test_an_order_that_names_an_issuer_outside_the_set_is_refused(fake: FakeWorld) -> None:
    fake.ca.slow.add("web.example.org")
    await issue(fake, "web")
    (request,) = await fake.requests()
    spec = {
        "request": request.spec.request,
        "dnsNames": ["web.example.org"],
        "issuerRef": {**ISSUER, "name": "second"},
    }
    tenant = Tenant(fake)
    owner = owner_of(CERTIFICATE_REQUESTS, request)
    await tenant.create(ORDERS, "forged", owner, _json(spec))
    order = await fake.world.get(ORDERS, "forged")
    assert order.status.state == "errored"
    assert 'ClusterIssuer "second" is not a member of the set' in order.status.reason
    assert ordered(second_of(fake)) == 0
