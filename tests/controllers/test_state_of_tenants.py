"""State in an annotation that a tenant may write delays the tenant's own object, and no issuer."""

from __future__ import annotations

from datetime import timedelta

from certwright.resources.causes import Why
from certwright.resources.names import NOT_BEFORE, RETRY
from certwright.resources.retry import RetryRecord, write_retry
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from controllers.external_issuer import ISSUER, ExternalIssuer, add_external_issuer
from controllers.scene import make_certificate
from support.world import START, World

HOUR = timedelta(hours=1)


async def _two_that_failed(world: World) -> ExternalIssuer:
    issuer = await add_external_issuer(world, lambda now: Why() if now < START + HOUR / 2 else None)
    for name in ("forged", "other"):
        await world.create(CERTIFICATES, make_certificate(name, "", issuer_ref=ISSUER))
    await world.settle()
    return issuer


async def test_a_time_in_a_request_delays_its_certificate_only_and_for_a_week(world: World) -> None:
    await _two_that_failed(world)
    patch = {"metadata": {"annotations": {NOT_BEFORE: "2999-01-01T00:00:00Z"}}}
    await world.client.patch(CERTIFICATE_REQUESTS, "forged-1", "default", patch)
    await world.start_controllers()
    await world.advance(2 * HOUR)
    assert await world.is_ready("other")
    assert not await world.is_ready("forged")
    await world.advance(timedelta(days=7))
    assert await world.is_ready("forged")


async def test_a_retry_record_delays_no_certificate_whose_request_exists(world: World) -> None:
    await _two_that_failed(world)
    late = START + timedelta(days=9000)
    record = RetryRecord(failed_at=START, next_attempt=late, not_before=late, waits_for_issuer=True)
    patch = {"metadata": {"annotations": write_retry(record)}}
    await world.client.patch(CERTIFICATES, "forged", "default", patch)
    await world.start_controllers()
    await world.advance(2 * HOUR)
    assert await world.is_ready("other")
    assert await world.is_ready("forged")


async def test_state_is_not_copied_from_a_certificate_to_its_request(world: World) -> None:
    await add_external_issuer(world, lambda _: None)
    made = make_certificate("web", "", issuer_ref=ISSUER)
    await world.stop_controllers()
    await world.create(CERTIFICATES, made)
    patch = {
        "metadata": {"annotations": {NOT_BEFORE: "2999-01-01T00:00:00Z", RETRY: "{}", "a.example/b": "c"}}
    }
    await world.client.patch(CERTIFICATES, "web", "default", patch)
    await world.start_controllers()
    await world.settle()
    (request,) = (await world.client.list(CERTIFICATE_REQUESTS)).items
    assert "a.example/b" in request.metadata.annotations
    assert not {NOT_BEFORE, RETRY} & request.metadata.annotations.keys()
