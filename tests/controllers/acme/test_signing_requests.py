"""Kubernetes' CertificateSigningRequests, for which ACME issuers order certificates."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.controllers.cache.shard_members import Shards
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_certificate, read_chain
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.references import IssuerReference
from certwright.resources.request import (
    CertificateRequest,
    CertificateRequestSpec,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATE_SIGNING_REQUESTS, ORDERS
from controllers.acme.fake_world import FakeWorld
from support.acme_world import acme_world
from support.pebble import Pebble
from support.world import World

ENABLED = "*,certificatesigningrequests-issuer-acme"
SIGNER = "clusterissuers.cert-manager.io/acme"
USAGES = ("digital signature", "server auth")
APPROVED = {
    "status": {
        "conditions": [{"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "yes"}]
    }
}


def request_for(*dns_names: str, common_name: str = "", **annotations: str) -> CertificateSigningRequest:
    """The request `mine` to the ClusterIssuer `acme`."""
    plan = CsrPlan(common_name=common_name, dns_names=dns_names, usages=USAGES)
    csr = build_csr(plan, generate(KeyPlan.of("ECDSA")))
    spec = CertificateSigningRequestSpec(request=csr, signer_name=SIGNER, usages=USAGES)
    return CertificateSigningRequest(metadata=ObjectMeta(name="mine", annotations=annotations), spec=spec)


async def approved(fake: FakeWorld, request: CertificateSigningRequest) -> CertificateSigningRequest:
    """The request after its approval."""
    await fake.world.create(CERTIFICATE_SIGNING_REQUESTS, request)
    await fake.world.client.patch(CERTIFICATE_SIGNING_REQUESTS, "mine", "", APPROVED, subresource="approval")
    await fake.world.settle()
    return await mine(fake.world)


async def mine(world: World) -> CertificateSigningRequest:
    return await world.get(CERTIFICATE_SIGNING_REQUESTS, "mine")


async def events(world: World) -> list[tuple[str, str]]:
    recorded = await world.events()
    return [(event.type, event.reason) for event in recorded if event.involved_object.name == "mine"]


@pytest.fixture
async def signing(bare: FakeWorld) -> FakeWorld:
    """A world that signs Kubernetes' requests, with an ACME issuer."""
    await bare.start(enabled=ENABLED)
    await bare.issuer()
    return bare


async def test_an_approved_request_is_ordered_in_the_namespace_of_the_issuers_secrets(
    signing: FakeWorld,
) -> None:
    note = {"acme.cert-manager.io/http01-override-ingress-name": "web"}
    await approved(signing, request_for("a.example.org", **note))
    await signing.world.advance(timedelta(minutes=1))
    request = await mine(signing.world)
    assert read_certificate(request.status.certificate).dns_names == ("a.example.org",)
    (order,) = await signing.orders()
    (owner,) = order.metadata.owner_references
    assert (order.metadata.namespace, owner.kind, owner.uid) == (
        "kube-system",
        "CertificateSigningRequest",
        request.metadata.uid,
    )
    assert note.items() <= dict(order.metadata.annotations).items()
    assert await events(signing.world) == [("Normal", "OrderPending"), ("Normal", "CertificateIssued")]


async def test_nothing_is_ordered_before_the_approval(signing: FakeWorld) -> None:
    await signing.world.create(CERTIFICATE_SIGNING_REQUESTS, request_for("a.example.org"))
    await signing.world.advance(timedelta(minutes=1))
    assert await signing.orders() == []


async def test_a_name_that_no_ca_orders_fails_the_request(signing: FakeWorld) -> None:
    request = await approved(signing, request_for("a.example.org", common_name="b.example.org"))
    (failed,) = [condition for condition in request.status.conditions if condition.type == "Failed"]
    assert failed.reason == "InvalidOrder"
    assert '"b.example.org" does not exist in [a.example.org]' in failed.message


async def test_a_failed_order_fails_the_request(signing: FakeWorld) -> None:
    signing.ca.sees = lambda _found, _kind: False
    await approved(signing, request_for("a.example.org"))
    await signing.world.advance(timedelta(minutes=5))
    (failed,) = [
        condition for condition in (await mine(signing.world)).status.conditions if condition.type == "Failed"
    ]
    assert failed.reason == "OrderFailed"


async def test_a_certificate_request_of_the_same_name_has_another_order(signing: FakeWorld) -> None:
    spec = CertificateRequestSpec(
        request=request_for("b.example.org").spec.request,
        issuer_ref=IssuerReference(name="acme", kind="ClusterIssuer"),
        usages=USAGES,
    )
    meta = ObjectMeta(name="mine", namespace="kube-system")
    request = CertificateRequest(metadata=meta, spec=spec)
    await signing.world.create(CERTIFICATE_REQUESTS, request)
    await approved(signing, request_for("a.example.org"))
    await signing.world.advance(timedelta(minutes=1))
    assert read_certificate((await mine(signing.world)).status.certificate).dns_names == ("a.example.org",)
    other = await signing.world.client.get(CERTIFICATE_REQUESTS, "mine", "kube-system")
    assert read_certificate(other.status.certificate).dns_names == ("b.example.org",)


async def test_an_order_goes_on_after_a_restart_and_is_placed_once(signing: FakeWorld) -> None:
    signing.ca.processing_polls = 6
    await approved(signing, request_for("a.example.org"))
    await signing.start(enabled=ENABLED)
    await signing.world.advance(timedelta(minutes=5))
    assert (await mine(signing.world)).status.certificate
    assert len(await signing.orders()) == 1


async def test_the_replica_that_has_the_request_has_its_order(signing: FakeWorld) -> None:
    await signing.start(enabled=ENABLED, mine=Shards(frozenset({0, 1}), 2))
    await approved(signing, request_for("a.example.org"))
    await signing.world.advance(timedelta(minutes=1))
    assert (await mine(signing.world)).status.certificate


async def test_the_order_is_deleted_with_its_request(signing: FakeWorld) -> None:
    await approved(signing, request_for("a.example.org"))
    await signing.world.advance(timedelta(minutes=1))
    await signing.world.client.delete(CERTIFICATE_SIGNING_REQUESTS, "mine")
    await signing.world.advance(timedelta(minutes=5))
    assert (await signing.world.client.list(ORDERS)).items == []


async def test_pebble_signs_a_request_of_kubernetes(pebble: Pebble) -> None:
    async with acme_world(pebble, enabled=ENABLED) as world:
        await world.issuer()
        request = request_for("csr.example.com")
        await world.client.create(CERTIFICATE_SIGNING_REQUESTS, request)
        await world.client.patch(CERTIFICATE_SIGNING_REQUESTS, "mine", "", APPROVED, subresource="approval")
        signed = await world.until(
            CERTIFICATE_SIGNING_REQUESTS, "mine", lambda obj: bool(obj.status.certificate)
        )
        leaf = read_chain(signed.status.certificate)[0]
        assert leaf.dns_names == ("csr.example.com",)
        assert leaf.public_key_der == read_csr(request.spec.request).public_key_der
