"""Started where cert-manager has issued: nothing is issued again, nothing that is at rest is changed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.kube.api import conditions
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from support.world import START
from takeover import fleet
from takeover.objects import BORN, INTERMEDIATE, Issued, Json
from takeover.scene import taken_over, written


async def test_what_is_at_rest_is_left_alone() -> None:
    async with taken_over(fleet.settled()) as world:
        assert len((await world.client.list(CERTIFICATES)).items) > 15
        assert written(world) == []
        await world.advance(timedelta(days=1))
        assert written(world) == []
        assert world.recording.event_writes() == []


async def test_the_next_renewals_come_when_cert_manager_would_have_made_them() -> None:
    planned = Issued("by-ca", fleet.CA, fleet.WEB, authority=INTERMEDIATE)
    async with taken_over([*fleet.issuers(), *fleet.issuer_secrets(), *planned.all()]) as world:
        await world.advance_to(planned.renewal_time - timedelta(seconds=1))
        assert written(world) == []
        await world.advance_to(planned.renewal_time)
        assert (await world.certificate("by-ca")).status.revision == 2
        assert await world.is_ready("by-ca")


@pytest.mark.parametrize("made", fleet.old_versions(), ids=lambda made: made.name)
async def test_a_secret_of_an_old_version_gets_its_label_and_annotations_in_one_write(made: Issued) -> None:
    before = made.secret()
    async with taken_over([*fleet.issuers(), *fleet.issuer_secrets(), *made.all()]) as world:
        # The first adds `observedGeneration`, which conditions did not have then.
        assert written(world) == [
            f"PATCH default/certificates/{made.name}/status",
            f"PATCH default/secrets/{made.name}",
        ]
        ready = conditions.find((await world.certificate(made.name)).status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.last_transition_time) == ("True", BORN)
        secret = await world.secret(made.name)
        assert secret.metadata.labels == {"controller.cert-manager.io/fao": "true"}
        assert before["metadata"]["annotations"].items() <= secret.metadata.annotations.items()
        assert secret.data["tls.crt"] == made.chain
        await world.advance(timedelta(days=1))
        assert len(written(world)) == 2


async def test_only_the_label_is_put_back_where_only_the_label_is_missing() -> None:
    made = Issued("web", fleet.CA, fleet.WEB)
    secret = made.secret()
    del secret["metadata"]["labels"]
    objects = [*fleet.issuers(), *fleet.issuer_secrets(), made.certificate(), made.request(), secret]
    async with taken_over(objects) as world:
        assert written(world) == ["PATCH default/secrets/web"]
        after = await world.secret("web")
        assert after.metadata.annotations == secret["metadata"]["annotations"]


async def test_owned_secrets_stay_owned_where_the_flag_is_given() -> None:
    made = Issued("web", fleet.CA, fleet.WEB, owned_secret=True)
    objects = [*fleet.issuers(), *fleet.issuer_secrets(), *made.all()]
    async with taken_over(objects, certificate_owner_references=True) as world:
        assert written(world) == []


async def test_a_failed_issuance_goes_on_waiting_and_counting() -> None:
    objects = [*fleet.issuers(), *fleet.issuer_secrets(), *fleet.failed_one()]
    async with taken_over(objects) as world:
        # What it waits for is recorded and shown; nothing else changes.
        path = "PATCH default/certificates/failing"
        assert written(world) == [path, f"{path}/status"]
        status = (await world.certificate("failing")).status
        assert status.failed_issuance_attempts == 3
        failed = conditions.find(status.conditions, "Issuing")
        assert failed is not None
        assert (failed.status, failed.reason) == ("False", "Failed")
        assert failed.last_transition_time == BORN
        # An hour has passed; the third failure is waited for four hours.
        await world.advance(timedelta(hours=2, minutes=59))
        assert len(written(world)) == 2
        await world.advance(timedelta(minutes=2))
        assert len(written(world)) > 2
        assert (await world.certificate("failing")).status.failed_issuance_attempts == 3


async def test_a_certificate_that_is_due_is_renewed_once_with_a_key_as_the_spec_says() -> None:
    due = Issued("web", fleet.CA, fleet.WEB, begin=START - timedelta(days=70))
    async with taken_over([*fleet.issuers(), *fleet.issuer_secrets(), *due.all()]) as world:
        names = [request.metadata.name for request in (await world.client.list(CERTIFICATE_REQUESTS)).items]
        assert names == ["web-2"]
        assert (await world.secret("web")).data["tls.crt"] != due.chain


def history() -> list[Json]:
    """A Certificate that keeps three revisions, and all of them."""
    return [*fleet.issuers(), *fleet.issuer_secrets(), *fleet.with_history()]


async def test_requests_of_old_revisions_are_kept_as_long_as_the_spec_says() -> None:
    async with taken_over(history()) as world:
        names = [request.metadata.name for request in (await world.client.list(CERTIFICATE_REQUESTS)).items]
        assert sorted(names) == ["history-2", "history-3", "history-9xk2p"]
