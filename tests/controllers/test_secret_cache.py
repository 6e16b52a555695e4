"""How often Secrets are asked for, what is held of them, and who hears of those without the label."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.serialization import pkcs12

from certwright.controllers.cache.secrets import Secrets
from certwright.kube.api.core import SECRETS
from certwright.kube.client.filtered_informer import SelectiveInformer
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources import names
from certwright.resources.certificate import Keystores, PKCS12Keystore
from certwright.resources.references import SecretKeySelector
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS
from controllers.crashes import LiveReads
from controllers.scene import (
    CA,
    make_ca_issuer,
    make_certificate,
    make_cluster_issuer,
    make_issuer,
    make_secret,
)
from issuers.authority import new_root
from support.world import World, condition_of, make_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world whose controllers have not been started yet."""
    async with make_world(controllers=False) as made:
        yield made


async def add_authorities(world: World, count: int) -> None:
    """Unlabelled CAs `ca-0` and so on, with an Issuer each."""
    for number in range(count):
        await world.create(SECRETS, make_secret(f"ca-{number}", new_root(f"CA {number}").secret()))
        await world.create(ISSUERS, make_ca_issuer(f"ca-{number}", f"ca-{number}"))


async def add_certificates(world: World, count: int, authorities: int) -> None:
    for number in range(count):
        certificate = make_certificate(f"web-{number}", f"ca-{number % authorities}")
        await world.create(CERTIFICATES, certificate)
    await world.settle()


def cached_counts(secrets: Secrets) -> tuple[int, int, int]:
    """The number of Secrets the informers cache in full, as identities, and as names only."""
    full, bare = secrets.informers
    assert isinstance(bare, SelectiveInformer)
    return len(full.cache), len(bare.cache), len(bare.others)


def secrets_of(world: World) -> Secrets:
    return world.manager.wiring.caches.secrets


def public_key(pem: bytes) -> bytes:
    return public_key_der(load_private_key(pem))


async def ready_message(world: World, name: str) -> tuple[str, str]:
    condition = condition_of(await world.get(ISSUERS, name), "Ready")
    return condition.status, condition.message


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_unlabelled_ca_costs_one_request_not_one_for_each_certificate(
    world: World, restarted: bool
) -> None:
    await add_authorities(world, 4)
    gets = LiveReads(world)
    if restarted:
        await add_certificates(world, 40, 4)
        await world.start_controllers()
    else:
        await world.start_controllers()
        await add_certificates(world, 40, 4)
    assert all([await world.is_ready(f"web-{number}") for number in range(40)])
    assert gets.secrets == {f"ca-{number}": 1 for number in range(4)}


async def test_a_ca_that_changes_is_asked_for_once_more(world: World) -> None:
    await add_authorities(world, 2)
    await world.start_controllers()
    await add_certificates(world, 10, 2)
    gets = LiveReads(world)
    other = new_root("Other CA")
    await world.patch(SECRETS, "ca-0", {"data": other.secret()})
    # Each Certificate trusts the new CA at once.
    for number in range(10):
        ca_pem = (await world.secret(f"web-{number}")).data["ca.crt"]
        assert (other.secret()["tls.crt"] in ca_pem) is (number % 2 == 0)
    await world.patch(SECRETS, "ca-1", {"metadata": {"annotations": {"note": "x"}}})
    # Their Secrets are written whole, and the private keys were not held.
    written = {f"web-{number}": 1 for number in range(0, 10, 2)}
    assert gets.secrets == {"ca-0": 1, "ca-1": 1, **written}


async def test_without_the_feature_all_is_the_same_and_nothing_is_asked(world: World) -> None:
    await add_authorities(world, 2)
    gets = LiveReads(world)
    await world.start_controllers(filtered_secrets=False)
    await add_certificates(world, 10, 2)
    assert all([await world.is_ready(f"web-{number}") for number in range(10)])
    assert not gets.secrets
    assert not any("labelSelector" in query for query in gets.lists)
    assert len(secrets_of(world).informers) == 1


async def test_of_secrets_that_nothing_refers_to_only_names_are_held(world: World) -> None:
    await add_authorities(world, 1)
    for number in range(30):
        await world.create(SECRETS, make_secret(f"other-{number}", {"big": b"x" * 10_000}))
    await world.start_controllers()
    assert cached_counts(secrets_of(world)) == (0, 1, 30)
    gets = LiveReads(world)
    for number in range(30):
        patch = {"metadata": {"labels": {"of": "somebody"}}}
        await world.client.patch(SECRETS, f"other-{number}", "default", patch)
        if number % 2:
            await world.client.delete(SECRETS, f"other-{number}", "default")
    await world.settle()
    assert not gets.secrets
    assert cached_counts(secrets_of(world))[:2] == (0, 1)


async def test_a_secret_that_was_there_before_anybody_referred_to_it_is_found(world: World) -> None:
    await world.create(SECRETS, make_secret("late", new_root("Late CA").secret()))
    await world.start_controllers()
    await world.add(ISSUERS, make_ca_issuer("late", "late"))
    assert (await ready_message(world, "late"))[0] == "True"


async def test_an_issuer_hears_of_its_unlabelled_secret_at_once(world: World) -> None:
    await world.start_controllers()
    await world.add(ISSUERS, make_ca_issuer("ca", "pair"))
    assert "not found" in (await ready_message(world, "ca"))[1]
    await world.add(SECRETS, make_secret("pair", {"tls.crt": b"nonsense", "tls.key": b"nonsense"}))
    assert "not found" not in (await ready_message(world, "ca"))[1]
    await world.patch(SECRETS, "pair", {"data": new_root("CA").secret()})
    assert (await ready_message(world, "ca"))[0] == "True"
    patch = {"metadata": {"labels": {names.FAO_LABEL: "true"}}}
    await world.client.patch(SECRETS, "pair", "default", patch)
    await world.patch(SECRETS, "pair", {"data": {"tls.crt": b"nonsense"}})
    assert (await ready_message(world, "ca"))[0] == "False"
    await world.client.patch(SECRETS, "pair", "default", {"metadata": {"labels": {names.FAO_LABEL: None}}})
    await world.patch(SECRETS, "pair", {"data": new_root("CA").secret()})
    assert (await ready_message(world, "ca"))[0] == "True"
    await world.delete(SECRETS, "pair")
    assert "not found" in (await ready_message(world, "ca"))[1]


async def test_a_cluster_issuer_and_its_certificates_hear_of_an_unlabelled_secret(world: World) -> None:
    await world.start_controllers(cluster_resource_namespace="default")
    await world.create(CLUSTER_ISSUERS, make_cluster_issuer("ca", CA))
    await world.add(CERTIFICATES, make_certificate("web", "ca", kind="ClusterIssuer"))
    assert not await world.is_ready("web")
    await world.add(SECRETS, make_secret("ca", new_root("CA").secret()))
    assert await world.is_ready("web")


async def test_in_one_namespace_nothing_else_is_listed(world: World) -> None:
    await add_authorities(world, 1)
    gets = LiveReads(world)
    await world.start_controllers(namespace="default")
    await add_certificates(world, 3, 1)
    assert await world.is_ready("web-2")
    assert gets.secrets == {"ca-0": 1}


async def test_with_shards_each_replica_asks_once_for_the_ca_of_an_issuer_that_is_anothers(
    world: World,
) -> None:
    await add_authorities(world, 1)
    await world.start_controllers()
    gets = LiveReads(world)
    # All Certificates are ours, the Issuer is somebody else's.
    await world.start_controllers(mine=lambda key: key.name.startswith("web"))
    await add_certificates(world, 12, 1)
    assert all([await world.is_ready(f"web-{number}") for number in range(12)])
    assert gets.secrets == {"ca-0": 1}


async def test_a_keystore_hears_of_its_unlabelled_password(world: World) -> None:
    await add_authorities(world, 1)
    await world.start_controllers()
    reference = SecretKeySelector(name="password", key="pw")
    stores = Keystores(pkcs12=PKCS12Keystore(create=True, password_secret_ref=reference))
    await world.add(CERTIFICATES, make_certificate("web", "ca-0", keystores=stores))
    assert not await world.is_ready("web")
    await world.add(SECRETS, make_secret("password", {"pw": b"changeit"}))
    assert await world.is_ready("web")
    await world.patch(SECRETS, "password", {"data": {"pw": b"another"}})
    store = (await world.secret("web")).data["keystore.p12"]
    assert pkcs12.load_pkcs12(store, b"another").key is not None
    assert (await world.certificate("web")).status.revision == 1


async def test_a_target_that_was_made_without_the_label_is_judged_before_it_is_written(
    world: World,
) -> None:
    """As an earlier cert-manager leaves it: sound, and without the label."""
    await add_authorities(world, 1)
    await world.start_controllers()
    await add_certificates(world, 1, 1)
    await world.stop_controllers()
    await world.client.patch(SECRETS, "web-0", "default", {"metadata": {"labels": {names.FAO_LABEL: None}}})
    before = await world.secret("web-0")
    gets = LiveReads(world)
    await world.start_controllers()
    after = await world.secret("web-0")
    assert after.data == before.data
    assert after.metadata.labels[names.FAO_LABEL] == "true"
    assert gets.secrets["web-0"] == 1


async def test_the_label_is_put_back_on_a_next_key_which_is_used_all_the_same(world: World) -> None:
    await world.start_controllers()
    await world.create(ISSUERS, make_ca_issuer("ca", "pair"))
    await world.add(CERTIFICATES, make_certificate("web", "ca"))
    name = (await world.certificate("web")).status.next_private_key_secret_name or ""
    made = await world.secret(name)
    await world.patch(SECRETS, name, {"metadata": {"labels": {names.FAO_LABEL: None}}})
    mended = await world.secret(name)
    assert mended.metadata.labels[names.FAO_LABEL] == "true"
    assert mended.metadata.uid == made.metadata.uid
    await world.add(SECRETS, make_secret("pair", new_root("CA").secret()))
    issued = (await world.secret("web")).data["tls.key"]
    assert public_key(issued) == public_key(made.data["tls.key"])


async def test_a_lost_target_is_noticed_also_after_it_has_moved(world: World) -> None:
    await add_authorities(world, 1)
    await world.start_controllers()
    await add_certificates(world, 1, 1)
    before = await world.secret("web-0")
    await world.client.patch(SECRETS, "web-0", "default", {"metadata": {"labels": {names.FAO_LABEL: None}}})
    await world.delete(SECRETS, "web-0")
    await world.advance(timedelta(minutes=1))
    after = await world.secret("web-0")
    assert after.metadata.uid != before.metadata.uid
    assert await world.is_ready("web-0")


async def test_what_nothing_refers_to_any_more_is_let_go(world: World) -> None:
    await world.start_controllers()
    for number in range(200):
        await world.create(SECRETS, make_secret(f"ca-{number}", {"tls.crt": b"x"}))
        await world.add(ISSUERS, make_ca_issuer(f"ca-{number}", f"ca-{number}"))
        await world.delete(ISSUERS, f"ca-{number}")
    assert cached_counts(secrets_of(world))[1] <= 65
    await world.create(ISSUERS, make_issuer("self-signed"))
    await world.add(CERTIFICATES, make_certificate("web", "self-signed"))
    assert await world.is_ready("web")
