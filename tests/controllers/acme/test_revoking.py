"""Revocation with the certificate's own key, at Pebble, and with the account's, at the fake CA."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.acme.protocol.messages import Action
from certwright.controllers.acme.revoking import REASONS, CannotRevoke, Holder, revoke
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import NotFound
from certwright.pki.certificates import read_certificate
from certwright.resources.table import CLUSTER_ISSUERS
from controllers.acme.fake_world import FakeWorld
from support.acme_world import AcmeWorld, acme_world
from support.pebble import Pebble


async def ask(world: AcmeWorld, name: str, *, reason: str = "superseded", is_secret: bool = False) -> str:
    """The serial number of what was revoked."""
    outcome = await revoke(
        world.client, Holder("default", name, is_secret), reason=reason, user_agent="certwright-test"
    )
    assert outcome.server == world.pebble.directory
    return outcome.serial


async def test_a_certificate_is_revoked_by_its_name_or_its_secret(pebble: Pebble) -> None:
    async with acme_world(pebble) as world:
        await world.issuer()
        for name, is_secret in (("by-name", False), ("by-secret", True)):
            await world.certificate(name, f"{name}.example.org")
            await world.ready(name)
            secret = await world.client.get(SECRETS, name, "default")
            serial = f"{read_certificate(secret.data['tls.crt']).serial_number:x}"
            assert pebble.status_of(serial)["Status"] == "Valid"
            assert await ask(world, name, is_secret=is_secret) == serial
            assert pebble.status_of(serial)["Status"] == "Revoked"
            assert pebble.status_of(serial)["Reason"] == REASONS["superseded"]
            # Once more is no mistake.
            assert await ask(world, name, is_secret=is_secret) == serial


async def test_what_cannot_be_revoked_is_told_with_the_fix(pebble: Pebble) -> None:
    async with acme_world(pebble) as world:
        await world.create(CLUSTER_ISSUERS, {"metadata": {"name": "own"}, "spec": {"selfSigned": {}}})
        await world.certificate("plain", "plain.example.org", issuer="own")
        await world.ready("plain")
        with pytest.raises(CannotRevoke, match='ClusterIssuer "own" is not an ACME issuer'):
            await ask(world, "plain")
        await world.client.delete(CLUSTER_ISSUERS, "own")
        with pytest.raises(CannotRevoke, match="does not exist"):
            await ask(world, "plain")
        with pytest.raises(NotFound):
            await ask(world, "nobody")
        await world.create(
            SECRETS, {"metadata": {"name": "foreign", "namespace": "default"}, "type": "Opaque"}
        )
        with pytest.raises(CannotRevoke, match="nothing says which ACME issuer"):
            await ask(world, "foreign", is_secret=True)


async def ask_fake(fake: FakeWorld) -> str:
    """The serial number of what was revoked; how it was refused otherwise."""
    holder = Holder("default", "web")
    try:
        outcome = await revoke(
            fake.world.client,
            holder,
            reason="superseded",
            user_agent="certwright-test",
            make_transport=fake.ca.transport,
        )
    except CannotRevoke as error:
        return str(error)
    return outcome.serial


@pytest.mark.parametrize("refusal", ["accountDoesNotExist", "unauthorized", "malformed"])
async def test_the_account_revokes_where_the_certificates_key_is_refused(
    fake: FakeWorld, refusal: str
) -> None:
    await fake.issue("web", after=timedelta(minutes=1))
    fake.ca.refuses_certificate_keys = refusal
    secret = await fake.world.client.get(SECRETS, "web", "default")
    assert await ask_fake(fake) == f"{read_certificate(secret.data['tls.crt']).serial_number:x}"
    assert fake.ca.counted()[Action.REVOKE_CERT] == 2


async def test_who_may_not_read_the_accounts_key_is_told_so_and_other_refusals_are_not_repeated(
    fake: FakeWorld,
) -> None:
    await fake.issue("web", after=timedelta(minutes=1))
    fake.ca.refuses_certificate_keys = "badRevocationReason"
    assert (await ask_fake(fake)).endswith("signed by no account [badRevocationReason]")
    assert fake.ca.counted()[Action.REVOKE_CERT] == 1
    fake.ca.refuses_certificate_keys = "unauthorized"
    fake.ca.refuse(Action.NEW_ACCOUNT, "unauthorized", "closed", status=403)
    assert (await ask_fake(fake)).endswith("; nor by the account's key: closed [unauthorized]")
    await fake.world.client.delete(SECRETS, "acme-account", "kube-system")
    missing = 'it may want the account\'s key, but secrets "acme-account" not found (namespace kube-system)'
    assert missing in await ask_fake(fake)
