"""A user who may create Certificates destroys nobody's Secret, and not silently (audit A11)."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from certwright.controllers.certificates.ownership import RESERVED_TYPES
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.client.rest import Client
from certwright.resources.certificate import SecretTemplate
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from support.world import World, make_world

# What admission asks of Secrets of a type.
_DATA: dict[str, dict[str, bytes]] = {
    "kubernetes.io/dockercfg": {".dockercfg": b"{}"},
    "kubernetes.io/dockerconfigjson": {".dockerconfigjson": b"{}"},
    "kubernetes.io/basic-auth": {"username": b"u", "password": b"p"},
    "kubernetes.io/ssh-auth": {"ssh-privatekey": b"key"},
}


async def make_secret(world: World, type_: str, data: dict[str, bytes], **annotations: str) -> Secret:
    """A Secret of the administrator's."""
    meta = SecretMeta(name="victim", namespace="default", labels={"owner": "admin"}, annotations=annotations)
    return await world.client.create(SECRETS, Secret(metadata=meta, type=type_, data=data))


async def attack(world: World) -> None:
    """The Certificate of audit A11."""
    await world.create(ISSUERS, make_issuer("selfsigned"))
    template = SecretTemplate(labels={"owner": "viewer"})
    certificate = make_certificate("evil", "selfsigned", secret_name="victim", secret_template=template)
    await world.create(CERTIFICATES, certificate)
    await world.settle()


async def warnings(world: World, reason: str) -> list[str]:
    """The messages of the Warning Events with that reason."""
    assert world.controllers is not None
    await world.controllers.flush()
    events = [event for event in await world.events() if event.reason == reason]
    assert all(event.type == "Warning" for event in events)
    return [f"{event.message} x{event.count}" for event in events]


@pytest.mark.parametrize("type_", sorted(RESERVED_TYPES))
async def test_secrets_of_reserved_types_are_never_written(type_: str) -> None:
    async with make_world() as world:
        if type_ == "kubernetes.io/service-account-token":
            accounts = "/api/v1/namespaces/default/serviceaccounts"
            await _post(world.client, accounts, {"metadata": {"name": "robot"}})
            before = await make_secret(world, type_, {}, **{"kubernetes.io/service-account.name": "robot"})
            await world.settle()
            before = await world.secret("victim")
            assert "token" in before.data
        else:
            before = await make_secret(world, type_, _DATA.get(type_, {"tls.key": b"MY OWN KEY"}))
        await attack(world)
        assert await world.secret("victim") == before
        current_conditions = (await world.certificate("evil")).status.conditions
        ready = conditions.find(current_conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", "ReservedSecret")
        assert type_ in ready.message
        assert "spec.secretName" in ready.message
        assert len(await warnings(world, "ReservedSecret")) == 1


async def test_a_reserved_secret_is_not_written_where_a_client_starts_the_issuance() -> None:
    async with make_world() as world:
        before = await make_secret(world, "kubernetes.io/basic-auth", _DATA["kubernetes.io/basic-auth"])
        await attack(world)
        path = "/apis/cert-manager.io/v1/namespaces/default/certificates/evil/status"
        # As cmctl renew does it.
        issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "now"}
        body = msgspec.json.encode({"status": {"conditions": [issuing]}})
        headers = {"content-type": "application/merge-patch+json"}
        await world.client.raw("PATCH", path, body=body, headers=headers)
        await world.settle()
        assert await world.secret("victim") == before
        condition = conditions.find((await world.certificate("evil")).status.conditions, "Issuing")
        assert condition is not None
        assert "kubernetes.io/basic-auth" in condition.message


async def test_adopting_a_secret_of_somebody_else_is_a_warning_once() -> None:
    async with make_world() as world:
        await make_secret(world, "Opaque", {"tls.key": b"MY OWN KEY", "password": b"p"})
        await attack(world)
        assert await world.is_ready("evil")
        assert (await world.secret("victim")).data["password"] == b"p"
        adopted = conditions.find((await world.certificate("evil")).status.conditions, "SecretAdopted")
        assert adopted is not None
        assert (adopted.status, adopted.reason) == ("True", "ForeignSecret")
        assert adopted.message.startswith('Secret "victim" existed before and was not made for')
        (event,) = await warnings(world, "SecretAdopted")
        await world.start_controllers()
        await world.settle()
        assert await warnings(world, "SecretAdopted") == [event]


async def test_a_secret_of_ours_or_of_cert_manager_is_taken_over_silently() -> None:
    async with make_world() as world:
        names = {"cert-manager.io/certificate-name": "evil"}
        await make_secret(world, "kubernetes.io/tls", {"tls.crt": b"", "tls.key": b""}, **names)
        await attack(world)
        assert await world.is_ready("evil")
        assert await warnings(world, "SecretAdopted") == []
        # Deleted by its owner and made again by us: nothing is adopted.
        await world.client.delete(SECRETS, "victim", "default")
        await world.settle()
        assert await world.is_ready("evil")
        assert conditions.find((await world.certificate("evil")).status.conditions, "SecretAdopted") is None


async def test_the_condition_goes_with_the_secret() -> None:
    async with make_world() as world:
        await make_secret(world, "Opaque", {"tls.key": b"MY OWN KEY"})
        await attack(world)
        await world.client.delete(SECRETS, "victim", "default")
        await world.settle()
        assert await world.is_ready("evil")
        assert conditions.find((await world.certificate("evil")).status.conditions, "SecretAdopted") is None


async def test_an_account_key_is_never_written_into_a_secret_that_exists() -> None:
    # `create_secret` of an ACME issuer only creates: what exists is read, and a missing key is reported.
    async with make_world() as world:
        before = await make_secret(world, "Opaque", {"password": b"p"})
        spec = {
            "acme": {
                "server": "https://127.0.0.1:1/dir",
                "privateKeySecretRef": {"name": "victim"},
                "solvers": [],
            }
        }
        body = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "i"}, "spec": spec}
        await _post(world.client, "/apis/cert-manager.io/v1/namespaces/default/issuers", body)
        await world.settle()
        assert await world.secret("victim") == before
        (ready,) = (await world.client.get(ISSUERS, "i", "default")).status.conditions
        assert 'Secret "victim" holds no account key' in ready.message
        assert base64.b64encode(b"p").decode() not in ready.message


async def _post(client: Client, path: str, body: dict[str, Any]) -> None:
    data = msgspec.json.encode(body)
    await client.raw("POST", path, body=data, headers={"content-type": "application/json"})
