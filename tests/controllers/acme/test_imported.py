"""A certificate and an account of another ACME client, imported: nothing is ordered before the renewal, and
the renewal names the certificate that it replaces."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certwright.cli.importing import dehydrated, objects
from certwright.cli.importing.model import LISTENER
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.pki.certificates import certificate_id, read_certificate
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CLUSTER_ISSUERS, ISSUERS, ORDERS
from support.acme_world import AcmeWorld, acme_world
from support.pebble import Pebble

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
    found = dehydrated.read(tmp_path, datetime.now(UTC), None)
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
            lambda certificate: (
                certificate.status.acme is not None and certificate.status.acme.ari is not None
            ),
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
