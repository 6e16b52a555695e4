"""The Order of a request: a certificate that was lost or imported is ordered again only when it must be."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certwright.cli.importing import objects, programs
from certwright.cli.importing.files import LISTENER
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import certificate_id, read_certificate
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CLUSTER_ISSUERS, ISSUERS, ORDERS
from controllers.acme.fake_world import FakeWorld
from support.acme_world import AcmeWorld, acme_world
from support.pebble import Pebble

NEVER = {"algorithm": "ECDSA", "rotationPolicy": "Never"}
A_MINUTE = timedelta(minutes=1)


@pytest.fixture
async def issued(fake: FakeWorld) -> FakeWorld:
    """A world with an issued Certificate `web` whose key is kept."""
    await fake.issue("web", "a.example.org", "b.example.org", privateKey=NEVER, after=A_MINUTE)
    assert await fake.world.is_ready("web")
    return fake


async def lose_certificate(fake: FakeWorld) -> bytes:
    """Somebody takes the certificate, not the key, out of the Secret; what it was."""
    secret = await fake.world.secret("web")
    await fake.world.client.patch(SECRETS, "web", "default", {"data": {"tls.crt": ""}})
    await fake.world.advance(A_MINUTE)
    return secret.data["tls.crt"]


async def test_a_lost_certificate_is_had_again_without_a_request_and_after_a_restart(
    issued: FakeWorld,
) -> None:
    for revision in (2, 3, 4):
        requests = len(issued.ca.requests)
        lost = await lose_certificate(issued)
        assert await issued.world.is_ready("web")
        assert (await issued.certificate()).status.revision == revision
        assert (await issued.world.secret("web")).data["tls.crt"] == lost
        assert len(issued.ca.requests) == requests
        assert len(await issued.orders()) == 1
        await issued.start()
        await issued.world.advance(A_MINUTE)


async def test_whoever_forces_a_renewal_gets_a_new_order(issued: FakeWorld) -> None:
    before = (await issued.world.secret("web")).data["tls.crt"]
    await issued.renew("web")
    await issued.world.advance(A_MINUTE)
    assert await issued.world.is_ready("web")
    assert (await issued.world.secret("web")).data["tls.crt"] != before
    assert len(issued.ca.orders) == 2


async def test_a_regular_renewal_with_the_same_key_makes_a_new_order(issued: FakeWorld) -> None:
    await issued.world.advance(timedelta(days=65))
    assert (await issued.certificate()).status.revision == 2
    assert len(issued.ca.orders) == 2


async def test_a_certificate_that_is_due_is_not_had_again(issued: FakeWorld) -> None:
    await issued.world.stop_controllers()
    await issued.world.advance(timedelta(days=62))
    await issued.world.client.patch(SECRETS, "web", "default", {"data": {"tls.crt": ""}})
    await issued.start()
    await issued.world.advance(A_MINUTE)
    assert await issued.world.is_ready("web")
    assert len(issued.ca.orders) == 2


async def test_another_key_makes_a_new_order(issued: FakeWorld) -> None:
    await issued.world.client.delete(SECRETS, "web", "default")
    await issued.world.advance(A_MINUTE)
    assert await issued.world.is_ready("web")
    assert len(issued.ca.orders) == 2


async def test_other_names_make_a_new_order(issued: FakeWorld) -> None:
    await issued.world.client.patch(CERTIFICATES, "web", "default", {"spec": {"dnsNames": ["a.example.org"]}})
    await issued.world.advance(A_MINUTE)
    assert await issued.world.is_ready("web")
    assert len(issued.ca.orders) == 2


async def test_a_request_that_is_made_again_gets_the_same_certificate(issued: FakeWorld) -> None:
    (first,) = await issued.requests()
    again: Any = CertificateRequest(
        metadata=ObjectMeta(name="again", namespace="default"),
        spec=msgspec.structs.replace(first.spec, username="", uid="", groups=(), extra={}),
    )
    requests = len(issued.ca.requests)
    await issued.world.create(CERTIFICATE_REQUESTS, again)
    await issued.world.advance(A_MINUTE)
    request = await issued.world.get(CERTIFICATE_REQUESTS, "again")
    assert request.status.certificate == first.status.certificate
    assert len(issued.ca.requests) == requests


async def test_an_order_goes_with_the_last_request_that_has_its_certificate(issued: FakeWorld) -> None:
    await lose_certificate(issued)
    (order,) = await issued.orders()
    assert len(await issued.requests()) == 1
    await issued.world.advance(timedelta(minutes=5))
    (order,) = await issued.orders()
    (request,) = await issued.requests()
    assert request.metadata.uid in [owner.uid for owner in order.metadata.owner_references]
    await issued.world.client.delete(CERTIFICATES, "web", "default")
    await issued.world.advance(timedelta(minutes=5))
    assert await issued.orders() == []


PLACE = objects.Place(namespace="default")


async def folder_of(world: AcmeWorld, folder: Path) -> str:
    """dehydrated's folder with a certificate and the account that ordered it; the account's URL."""
    await world.issuer()
    await world.certificate("web", "imported.example.com")
    await world.ready("web")
    issuer = await world.client.get(CLUSTER_ISSUERS, "acme")
    assert issuer.status.acme is not None
    pair = (await world.client.get(SECRETS, "web", "default")).data
    key = (await world.client.get(SECRETS, "acme-account", "kube-system")).data["tls.key"]
    server = urlsafe_b64encode(f"{world.pebble.directory}\n".encode()).decode()
    files = {
        "certs/imported.example.com/fullchain.pem": pair["tls.crt"],
        "certs/imported.example.com/privkey.pem": pair["tls.key"],
        f"accounts/{server}/account_key.pem": key,
        f"accounts/{server}/registration_info.json": b'{"contact": ["mailto:admin@example.org"]}',
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return issuer.status.acme.uri


@pytest.fixture
async def imported(pebble: Pebble, tmp_path: Path) -> tuple[str, objects.Plan]:
    """The URL of an account, and what is imported of it and its certificate."""
    async with acme_world(pebble) as world:
        account = await folder_of(world, tmp_path)
    found = programs.read_dehydrated(tmp_path, datetime.now(UTC), None)
    defaults = objects.AcmeDefaults(ca_bundle=pebble.ca_bundle, solver=LISTENER)
    return account, objects.plan_of(found, PLACE, defaults)


async def test_the_account_is_kept_and_the_renewal_replaces_the_certificate(
    pebble: Pebble, imported: tuple[str, objects.Plan]
) -> None:
    account, plan = imported
    name = "imported.example.com"
    async with acme_world(pebble) as world:
        lines = await objects.write(world.client, plan.objects, world.clock)
        assert all(line.endswith(" created") for line in lines)
        await world.ready(name)
        # Renewal information is polled with the account's client: what follows an import is over then.
        certificate = await world.until(
            CERTIFICATES,
            name,
            lambda obj: obj.status.acme is not None and obj.status.acme.ari is not None,
        )
        issuer = await world.until(
            ISSUERS, "localhost", lambda issuer: conditions.is_true(issuer.status.conditions, "Ready")
        )
        assert issuer.status.acme is not None
        assert issuer.status.acme.uri == account
        assert not (await world.client.list(ORDERS)).items
        assert not (await world.client.list(CERTIFICATE_REQUESTS)).items
        assert [condition.type for condition in certificate.status.conditions] == ["Ready"]
        secret = await world.client.get(SECRETS, f"{name}-tls", "default")
        (expected,) = (obj for obj in plan.objects if obj["metadata"]["name"] == f"{name}-tls")
        assert expected["metadata"]["annotations"] == secret.metadata.annotations
        assert [write for write in world.object_writes if "secrets" in write] == []
        old = read_certificate(secret.data["tls.crt"])

        lines = await objects.write(world.client, plan.objects, world.clock)
        assert all(line.endswith(" unchanged") for line in lines)

        status = {"conditions": [{"type": "Issuing", "status": "True", "reason": "Test", "message": ""}]}
        await world.client.patch(CERTIFICATES, name, "default", {"status": status}, subresource="status")
        await world.until(CERTIFICATES, name, lambda obj: obj.status.revision == 1)
        (order,) = (await world.client.list(ORDERS)).items
        assert order.spec.replaces == certificate_id(old)
        secret = await world.client.get(SECRETS, f"{name}-tls", "default")
        assert read_certificate(secret.data["tls.crt"]).serial_number != old.serial_number
