"""Venafi issuers with the real controllers and API server."""

from __future__ import annotations

import pytest

from certwright.kube.api import conditions
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.names import VENAFI_CUSTOM_FIELDS, VENAFI_PICKUP_ID
from certwright.resources.request import CertificateSigningRequest, CertificateSigningRequestSpec
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATE_SIGNING_REQUESTS,
    ISSUERS,
)
from controllers.crashes import Guillotine
from issuers.vault.test_controllers import approved
from issuers.venafi.live import add_certificate, add_issuer
from support.venafi.server import FakeVenafi
from support.world import ADMIN, LiveWorld, eventually, live_world

pytestmark = pytest.mark.usefixtures("trusted")


@pytest.mark.parametrize("product", ["tpp", "cloud", "ngts"])
async def test_a_certificate_is_issued_and_its_request_names_the_order(
    product: str, fake: FakeVenafi
) -> None:
    async with live_world() as world:
        await add_issuer(world, fake, product)
        await add_certificate(world, "web")
        await eventually(lambda: world.has_issued("web"))
        issuer = await world.get(ISSUERS, "venafi")
        assert conditions.is_true(issuer.status.conditions, "Ready")
        (request,) = (await world.client.list(CERTIFICATE_REQUESTS, "default")).items
        assert request.metadata.annotations[VENAFI_PICKUP_ID] == fake.state.placed[0]
        assert read_chain((await world.secret("web")).data["tls.crt"])[0].common_name == "web.example.com"
        assert len(fake.state.placed) == 1
        assert "Ready" in [event.reason for event in await world.events()]


@pytest.mark.long  # 200 certificates
async def test_two_hundred_certificates_take_one_login_and_three_calls_each(fake: FakeVenafi) -> None:
    async with live_world() as world:
        await add_issuer(world, fake)
        await eventually(lambda: is_ready(world))
        before = fake.state.calls["all"]
        for number in range(200):
            await add_certificate(world, f"web-{number}")
        await eventually(lambda: world.have_issued(200), within_s=120)
        calls = fake.state.calls
        assert calls["POST vedauth/authorize/oauth"] == 1
        assert calls["POST vedsdk/certificates/checkpolicy"] == 1
        assert calls["all"] - before == 3 * 200
        assert len(fake.state.placed) == 200


@pytest.mark.parametrize("product", ["tpp", "cloud", "ngts"])
async def test_a_certificate_takes_nine_writes_and_four_events(product: str, fake: FakeVenafi) -> None:
    async with live_world() as world:
        await add_issuer(world, fake, product)
        await eventually(lambda: is_ready(world))
        await world.settle()
        world.recording.writes.clear()
        await add_certificate(world, "web")
        await eventually(lambda: world.has_issued("web"))
        await eventually(lambda: has_removed_key(world))
        assert len(world.recording.object_writes()) <= 9
        assert len(world.recording.event_writes()) <= 4


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("product", ["tpp", "cloud"])
@pytest.mark.parametrize("writes", range(2, 9))
@pytest.mark.every(5)
async def test_after_a_crash_at_any_write_nothing_is_ordered_twice(
    writes: int, product: str, answered: bool, fake: FakeVenafi
) -> None:
    fake.state.polls = 1
    async with live_world() as world:
        await add_issuer(world, fake, product)
        await eventually(lambda: is_ready(world))
        cut = Guillotine(world.server.handle, writes, answered=answered)
        world.recording.handler = cut.handle
        await add_certificate(world, "web")
        await eventually(lambda: has_got_to(world, cut))
        await world.stop_controllers()
        requests = (await world.client.list(CERTIFICATE_REQUESTS, "default")).items
        is_saved = any(VENAFI_PICKUP_ID in request.metadata.annotations for request in requests)
        world.recording.handler = world.server.handle
        await world.start_controllers()
        await eventually(lambda: world.has_issued("web"))
        # SaaS chooses the ID of an order: one whose ID could not be saved is repeated.
        assert len(fake.state.placed) <= (1 if product == "tpp" or is_saved else 2)


async def has_removed_key(world: LiveWorld) -> bool:
    """Whether the last write is made: the Secret with the next key is deleted."""
    return world.recording.object_writes()[-1].method == "DELETE"


async def has_got_to(world: LiveWorld, cut: Guillotine) -> bool:
    """Whether the controllers were cut off, or wait for the server."""
    return cut.has_cut or await is_pending(world)


async def test_a_pending_order_is_fetched_later_with_custom_fields_and_one_order(fake: FakeVenafi) -> None:
    fake.state.polls = 1
    async with live_world() as world:
        await add_issuer(world, fake)
        fields = '[{"name": "Owner", "value": "web team"}]'
        await add_certificate(world, "web", annotations={VENAFI_CUSTOM_FIELDS: fields})
        await eventually(lambda: is_pending(world))
        await world.start_controllers()
        await eventually(lambda: world.has_issued("web"))
        (order,) = fake.state.orders.values()
        assert order.body["CustomFields"] == [{"Name": "Owner", "Values": ["web team"]}]
        assert len(fake.state.placed) == 1


async def test_custom_fields_of_the_issuer_and_of_the_certificate_are_merged(fake: FakeVenafi) -> None:
    async with live_world() as world:
        await add_issuer(world, fake)
        await eventually(lambda: is_ready(world))
        await annotate_issuer(world, "Owner: the platform team")
        await eventually(lambda: is_unready(world))
        issuer = await world.get(ISSUERS, "venafi")
        ready = conditions.find(issuer.status.conditions, "Ready")
        assert ready is not None
        assert ready.reason == "ErrorSetup"
        assert VENAFI_CUSTOM_FIELDS in ready.message
        own = '[{"name": "Owner", "value": "web team"}, {"name": "Tier", "value": "1"}]'
        await add_certificate(world, "web", annotations={VENAFI_CUSTOM_FIELDS: own})
        # As soon as the issuer's are readable the request that waited continues.
        await annotate_issuer(
            world,
            '[{"name": "Owner", "value": "platform", "type": "Plain"}, {"name": "Cost", "value": "7"}, '
            '{"name": "Cost", "value": "8"}]',
        )
        await eventually(lambda: world.has_issued("web"))
        (order,) = fake.state.orders.values()
        assert sorted(order.body["CustomFields"], key=lambda field: str(field["Name"])) == [
            {"Name": "Cost", "Values": ["7", "8"]},
            {"Name": "Owner", "Values": ["web team"]},
            {"Name": "Tier", "Values": ["1"]},
        ]


async def annotate_issuer(world: LiveWorld, fields: str) -> None:
    patch = {"metadata": {"annotations": {VENAFI_CUSTOM_FIELDS: fields}}}
    await world.client.patch(ISSUERS, "venafi", "default", patch)


async def is_unready(world: LiveWorld) -> bool:
    return not await is_ready(world)


async def test_what_the_policy_forbids_is_the_requests_fault_and_costs_no_order(fake: FakeVenafi) -> None:
    fake.state.policy["WhitelistedDomains"] = ["example.org"]
    async with live_world() as world:
        await add_issuer(world, fake)
        await add_certificate(world, "web")
        await eventually(lambda: has_failed(world))
        issuing = conditions.find((await world.certificate("web")).status.conditions, "Issuing")
        assert issuing is not None
        assert issuing.reason == "InvalidRequest"
        assert (
            'spec.commonName "web.example.com" is not allowed by the policy of the zone "Web"'
            in issuing.message
        )
        assert not fake.state.placed


async def test_a_signing_request_of_kubernetes_names_its_order(fake: FakeVenafi) -> None:
    async with live_world(enabled="*,certificatesigningrequests-issuer-venafi") as world:
        await add_issuer(world, fake)
        plan = CsrPlan(common_name="mine.example.com", usages=("client auth", "digital signature"))
        fields = {"venafi.experimental.cert-manager.io/custom-fields": '[{"name": "Owner", "value": "me"}]'}
        request = CertificateSigningRequest(
            metadata=ObjectMeta(name="mine", annotations=fields),
            spec=CertificateSigningRequestSpec(
                request=build_csr(plan, generate(KeyPlan.of("ECDSA"))),
                signer_name="issuers.cert-manager.io/default.venafi",
                usages=plan.usages,
                # The name of an administrator, who may reference every signer.
                username=ADMIN.name,
            ),
        )
        await approved(world, request)
        await eventually(lambda: is_signed(world))
        obj = await world.get(CERTIFICATE_SIGNING_REQUESTS, "mine")
        pickup_id = obj.metadata.annotations["venafi.experimental.cert-manager.io/pickup-id"]
        assert fake.state.placed == [pickup_id]
        assert fake.state.orders[pickup_id].body["CustomFields"] == [{"Name": "Owner", "Values": ["me"]}]


async def is_signed(world: LiveWorld) -> bool:
    """Whether Kubernetes' request has a certificate."""
    return bool((await world.get(CERTIFICATE_SIGNING_REQUESTS, "mine")).status.certificate)


async def is_ready(world: LiveWorld) -> bool:
    """Whether the issuer is ready."""
    return conditions.is_true((await world.get(ISSUERS, "venafi")).status.conditions, "Ready")


async def is_pending(world: LiveWorld) -> bool:
    """Whether a request waits for its order."""
    requests = (await world.client.list(CERTIFICATE_REQUESTS, "default")).items
    ready = [conditions.find(request.status.conditions, "Ready") for request in requests]
    return any(condition is not None and condition.reason == "Pending" for condition in ready)


async def has_failed(world: LiveWorld) -> bool:
    """Whether the issuance has failed."""
    return (await world.certificate("web")).status.last_failure_time is not None
