"""Issuers and ClusterIssuers: when they can sign, and what they say when they cannot."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.kube.api import errors
from certwright.kube.api.core import NAMESPACES, SECRETS, Namespace
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.keys import KeyPlan, encode_private_key, generate
from certwright.resources.issuer import Issuer
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS
from controllers.scene import (
    CA,
    SELF_SIGNED,
    Scene,
    make_ca_issuer,
    make_certificate,
    make_cluster_issuer,
    make_issuer,
    make_secret,
)
from issuers.authority import Authority, new_root
from support.world import World, condition_of, make_world

OTHER_KEY = encode_private_key(generate(KeyPlan.of("ECDSA")))


async def replace(world: World, data: dict[str, bytes]) -> None:
    """Put other data into the Secret `ca`."""
    patch = {"data": {name: msgspec.to_builtins(value) for name, value in data.items()}}
    await world.patch(SECRETS, "ca", patch)


async def issuer(world: World, name: str = "ca", kind: AnyKind = ISSUERS) -> tuple[str, str, str]:
    """Status, reason and message of an issuer's Ready, which must be of the present generation."""
    stored = await world.get(kind, name)
    condition = condition_of(stored, "Ready")
    assert condition.observed_generation == stored.metadata.generation
    return condition.status, condition.reason, condition.message


async def event_counts(world: World, name: str = "ca") -> list[tuple[str, str, int]]:
    """The Events about an object."""
    return [(e.type, e.reason, e.count) for e in await world.events() if e.involved_object.name == name]


async def make_ca(world: World, data: dict[str, bytes] | None) -> None:
    """An Issuer `ca`, with or without its Secret."""
    if data is not None:
        await world.create(SECRETS, make_secret("ca", data))
    await world.add(ISSUERS, make_ca_issuer("ca", "ca"))


ROOT = new_root("Root")
NO_CA = new_root("Web", is_ca=False)


@pytest.mark.parametrize(
    ("data", "reason", "words"),
    [
        (None, "ErrGetKeyPair", 'secret "ca" not found'),
        ({}, "ErrGetKeyPair", 'no data for "tls.crt" in secret "ca"'),
        ({"tls.crt": ROOT.pem}, "ErrGetKeyPair", 'no data for "tls.key" in secret "ca"'),
        ({**ROOT.secret(), "tls.crt": b"x"}, "ErrGetKeyPair", '"tls.crt" in secret "ca": not a certificate'),
        ({**ROOT.secret(), "tls.key": b"x"}, "ErrGetKeyPair", '"tls.key" in secret "ca": not a private key'),
        ({**ROOT.secret(), "tls.key": OTHER_KEY}, "ErrInvalidKeyPair", "is not the key of the certificate"),
        (NO_CA.secret(), "ErrInvalidKeyPair", "certificate is not a CA"),
    ],
    ids=["absent", "empty", "no key", "no certificate", "bad key", "another key", "no CA"],
)
async def test_a_ca_without_a_sound_pair_says_why_and_is_cured_by_one(
    data: dict[str, bytes] | None, reason: str, words: str, world: World
) -> None:
    await make_ca(world, data)
    status, why, message = await issuer(world)
    assert (status, why) == ("False", reason)
    assert message.startswith("Error getting keypair for CA issuer: ")
    assert words in message
    if data is None:
        # A Certificate may be about to create it.
        assert await event_counts(world) == []
        await world.advance(timedelta(seconds=2))
    assert await event_counts(world) == [("Warning", "ErrInitIssuer", 1)]
    if data is None:
        await world.add(SECRETS, make_secret("ca", ROOT.secret()))
    else:
        await replace(world, ROOT.secret())
    assert await issuer(world) == ("True", "KeyPairVerified", "Signing CA verified")
    assert await event_counts(world) == [("Warning", "ErrInitIssuer", 1), ("Normal", "KeyPairVerified", 1)]


async def test_a_secret_that_appears_in_a_moment_is_no_warning(world: World) -> None:
    await make_ca(world, None)
    assert (await issuer(world))[1] == "ErrGetKeyPair"
    await world.advance(timedelta(seconds=1))
    await world.create(SECRETS, make_secret("ca", ROOT.secret()))
    await world.advance(timedelta(seconds=5))
    assert await event_counts(world) == [("Normal", "KeyPairVerified", 1)]


async def test_no_message_holds_a_key(world: World) -> None:
    await make_ca(world, {"tls.crt": OTHER_KEY, "tls.key": OTHER_KEY[:100]})
    _, _, message = await issuer(world)
    secret = OTHER_KEY.decode().splitlines()[1][:20]
    assert secret not in message
    events = await world.events()
    assert events
    assert all(secret not in event.message for event in events)


async def test_a_self_signed_issuer_is_ready_and_silent(world: World) -> None:
    await world.create(ISSUERS, make_issuer("root"))
    await world.add(CLUSTER_ISSUERS, make_cluster_issuer("root", SELF_SIGNED))
    assert await issuer(world, "root") == ("True", "IsReady", "")
    assert await issuer(world, "root", CLUSTER_ISSUERS) == ("True", "IsReady", "")
    assert await event_counts(world, "root") == []


async def test_a_cluster_issuers_secret_is_only_looked_for_in_its_namespace() -> None:
    async with make_world(cluster_resource_namespace="certs") as world:
        await world.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="certs")))
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("ca", CA))
        await world.create(SECRETS, make_secret("ca", ROOT.secret()))
        await world.add(SECRETS, make_secret("ca", ROOT.secret(), namespace="kube-system"))
        assert (await issuer(world, kind=CLUSTER_ISSUERS))[:2] == ("False", "ErrGetKeyPair")
        await world.add(SECRETS, make_secret("ca", ROOT.secret(), namespace="certs"))
        assert (await issuer(world, kind=CLUSTER_ISSUERS))[0] == "True"
        made = make_certificate("web", "ca", kind="ClusterIssuer")
        await world.add(CERTIFICATES, made)
        assert await world.is_ready("web")


async def test_a_restart_tells_nothing_and_writes_nothing(world: World) -> None:
    await make_ca(world, ROOT.secret())
    await world.add(ISSUERS, make_ca_issuer("broken", "nothing"))
    before = [(e.metadata.name, e.count) for e in await world.events()]
    world.recording.writes.clear()
    await world.start_controllers()
    await world.advance(timedelta(hours=1))
    assert world.recording.writes == []
    assert [(e.metadata.name, e.count) for e in await world.events()] == before


async def test_a_changed_spec_is_judged_anew(world: World) -> None:
    await make_ca(world, ROOT.secret())
    await world.patch(ISSUERS, "ca", {"spec": {"ca": {"secretName": "other"}}})
    status, _, message = await issuer(world)
    assert status == "False"
    assert 'secret "other" not found' in message
    # The Secret of before is nothing to it any more.
    world.recording.writes.clear()
    await replace(world, NO_CA.secret())
    assert world.recording.object_writes() == []
    patch: dict[str, Any] = {"spec": {"ca": None, "selfSigned": {}}}
    await world.patch(ISSUERS, "ca", patch)
    assert await issuer(world) == ("True", "IsReady", "")


async def test_a_ca_that_expires_says_so_at_that_moment(world: World) -> None:
    await make_ca(world, ROOT.secret())
    end = ROOT.facts.not_after
    await world.advance_to(end - timedelta(seconds=1))
    assert (await issuer(world))[0] == "True"
    await world.advance_to(end)
    status, reason, message = await issuer(world)
    assert (status, reason) == ("False", "ErrInvalidKeyPair")
    assert "expired at 2026-12-01T00:00:00Z" in message
    # A long-lived one takes its place.
    young = Authority.fresh("Young", now=world.clock.now())
    await replace(world, young.secret())
    assert (await issuer(world))[0] == "True"


async def test_the_issuer_of_a_waiting_certificate_may_be_deleted_and_come_back(world: World) -> None:
    await make_ca(world, None)
    await world.add(CERTIFICATES, make_certificate("web", "ca"))
    await world.delete(ISSUERS, "ca")
    (request,) = await Scene(world).requests()
    condition = condition_of(request, "Ready")
    assert "not found" in condition.message
    await make_ca(world, ROOT.secret())
    assert await world.is_ready("web")


async def test_a_ca_secret_that_is_deleted_stops_new_certificates_only(world: World) -> None:
    await make_ca(world, ROOT.secret())
    await world.add(CERTIFICATES, make_certificate("web", "ca"))
    await world.delete(SECRETS, "ca")
    assert (await issuer(world))[:2] == ("False", "ErrGetKeyPair")
    assert await world.is_ready("web")
    await world.add(CERTIFICATES, make_certificate("next", "ca"))
    assert not await world.is_ready("next")
    await world.add(SECRETS, make_secret("ca", ROOT.secret()))
    assert await world.is_ready("next")


async def test_a_hundred_issuers_of_one_secret_are_all_woken_by_it(world: World) -> None:
    for number in range(100):
        await world.create(ISSUERS, make_ca_issuer(f"ca-{number}", "ca"))
    await world.settle()
    world.recording.writes.clear()
    await world.add(SECRETS, make_secret("ca", ROOT.secret()))
    assert len(world.recording.object_writes()) == 100
    for number in (0, 99):
        assert (await issuer(world, f"ca-{number}"))[0] == "True"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"ca": {"secretName": "ca"}, "selfSigned": {}},
        {"ca": {"secretName": ""}},
        {"ca": {"secretName": "ca", "ocspServers": [""]}},
        {"ca": {"secretName": "ca", "issuingCertificateURLs": [""]}},
        {"ca": {"secretName": "ca", "crlDistributionPoints": [""]}},
    ],
)
async def test_an_issuer_that_makes_no_sense_is_refused(spec: dict[str, Any], world: World) -> None:
    body = {"metadata": {"name": "x", "namespace": "default"}, "spec": spec}
    with pytest.raises(errors.Invalid):
        await world.create(ISSUERS, msgspec.convert(body, Issuer))
