"""What each of several replicas that share the work holds of the others' objects, and what it must know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

import pytest

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.shard_members import Shards, shard_of
from certwright.controllers.circuit_breaker import State
from certwright.controllers.manager import ControllerManager
from certwright.kube.api import codec
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.filtered_informer import PartialInformer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.executor import Inline
from certwright.resources import names
from certwright.resources.retry import BreakerRecord, write_breaker
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from controllers.scene import Scene, make_ca_issuer, make_certificate
from controllers.test_shards import issue
from support.world import CONTROLLER, World, make_world

COUNT = 2


def of_shard(shard: int, prefix: str = "web") -> Iterable[str]:
    """Names of Certificates in that shard."""
    names = (f"{prefix}-{number}" for number in range(1000))
    return (name for name in names if shard_of(ObjectKey("default", name), COUNT) == shard)


def some(shard: int, number: int, prefix: str = "web") -> list[str]:
    """So many of them."""
    return [name for name, _ in zip(of_shard(shard, prefix), range(number), strict=False)]


class Replicas:
    """Two, with a shard each, over one API server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scene = Scene(world)
        self.members: list[ControllerManager] = []

    async def start(self) -> None:
        for shard in range(COUNT):
            client = Client(LocalTransport(self.world.recording.handle, CONTROLLER), user_agent="replica")
            mine = Shards(frozenset({shard}), COUNT)
            made = ControllerManager(client, self.world.clock, Inline(), mine=mine)
            made.start()
            self.members.append(made)
        await self.world.settle()

    async def close(self) -> None:
        for member in self.members:
            await member.close()
        self.members.clear()

    def caches(self, shard: int) -> Caches:
        return self.members[shard].wiring.caches

    async def issue(self, *certificates: str) -> None:
        await issue(self.scene, certificates)


@pytest.fixture
async def replicas() -> AsyncIterator[Replicas]:
    async with make_world(controllers=False) as world:
        made = Replicas(world)
        await made.start()
        await made.scene.add_ca()
        yield made
        await made.close()


def cached_names(caches: Caches) -> dict[str, set[str]]:
    """The names of what is held, by kind."""
    full = caches.secrets.informers[0]
    return {
        "certificates": {key.name for key in list(caches.certificates.cache.keys())},
        "requests": {key.name for key in list(caches.requests.cache.keys())},
        "secrets": {key.name for key in list(full.cache.keys())},
    }


@pytest.mark.parametrize("restarted", [False, True])
async def test_each_holds_its_own_objects_and_the_ca(replicas: Replicas, restarted: bool) -> None:
    names_by_shard = [some(shard, 4) for shard in range(COUNT)]
    await replicas.issue(*names_by_shard[0], *names_by_shard[1])
    if restarted:
        await replicas.close()
        await replicas.start()
    for shard in range(COUNT):
        keys_by_cache = cached_names(replicas.caches(shard))
        assert {name for name in keys_by_cache["certificates"] if name != "ca"} == set(names_by_shard[shard])
        assert {name for name in keys_by_cache["requests"] if name != "ca-1"} == {
            f"{n}-1" for n in names_by_shard[shard]
        }
        # Where no look at it was needed since the start, not even that of the CA.
        assert {name for name in keys_by_cache["secrets"] if name != "ca"} == set(names_by_shard[shard])
        other = ObjectKey("default", names_by_shard[1 - shard][0])
        informer = replicas.caches(shard).certificates
        assert isinstance(informer, PartialInformer)
        assert other in informer.others


async def test_who_gets_all_shards_takes_over_what_it_had_left_out(replicas: Replicas) -> None:
    requested = some(0, 2) + some(1, 2)
    await replicas.issue(*requested)
    await replicas.close()
    await replicas.world.start_controllers(mine=Shards(frozenset({0, 1}), COUNT))
    replicas.world.recording.writes.clear()
    for name in requested:
        await replicas.world.client.delete(SECRETS, name, "default")
    await replicas.world.settle()
    for name in requested:
        assert await replicas.world.is_ready(name)
        assert (await replicas.world.secret(name)).data["tls.key"]
    await replicas.world.stop_controllers()


@pytest.mark.parametrize("first", range(COUNT))
async def test_of_two_with_one_secret_the_older_wins_whoever_works_on_it(
    replicas: Replicas, first: int
) -> None:
    older, newer = next(iter(of_shard(first))), next(iter(of_shard(1 - first)))
    world = replicas.world
    await replicas.issue(older)
    await world.add(CERTIFICATES, make_certificate(newer, "ca", secret_name=older))
    assert await world.is_ready(older)
    assert not await world.is_ready(newer)
    secret = await world.secret(older)
    assert secret.metadata.annotations[names.CERTIFICATE_NAME] == older
    # Nobody has to be told of it twice: the other one gets its turn when the first one goes.
    await world.delete(CERTIFICATES, older)
    assert await world.is_ready(newer)


async def test_a_rival_that_was_there_before_is_found(replicas: Replicas) -> None:
    world = replicas.world
    older, newer = next(iter(of_shard(0))), next(iter(of_shard(1)))
    await world.create(CERTIFICATES, make_certificate(older, "no-such-issuer", secret_name="shared"))
    await world.advance(timedelta(minutes=1))
    await world.add(CERTIFICATES, make_certificate(newer, "ca", secret_name="shared"))
    assert not await world.is_ready(newer)
    assert "shared" not in [
        secret.metadata.name for secret in (await world.client.list(SECRETS, "default")).items
    ]
    # It is let go of when it has another Secret.
    await replicas.scene.change_spec(older, secretName="another")
    assert await world.is_ready(newer)
    assert ObjectKey("default", older) not in replicas.caches(1).certificates.cache


async def test_a_ca_of_another_shard_signs_for_all_and_a_new_one_is_heard_of(replicas: Replicas) -> None:
    world = replicas.world
    for shard in range(COUNT):
        name = next(iter(of_shard(shard, "authority")))
        await world.create(CERTIFICATES, make_certificate(name, "ca", is_ca=True))
        await world.add(ISSUERS, make_ca_issuer(name, name))
        leaves = [next(iter(of_shard(number, f"leaf{shard}"))) for number in range(COUNT)]
        for leaf in leaves:
            await world.create(CERTIFICATES, make_certificate(leaf, name))
        await world.settle()
        await world.delete(SECRETS, name)
        authority = (await world.secret(name)).data["tls.crt"]
        for leaf in leaves:
            await world.add(CERTIFICATES, make_certificate(f"{leaf}-again", name))
            assert authority not in (await world.secret(leaf)).data["tls.crt"]
            assert authority in (await world.secret(f"{leaf}-again")).data["tls.crt"]


async def test_a_secret_that_was_made_for_another_shard_is_seen_by_who_targets_it(replicas: Replicas) -> None:
    world = replicas.world
    theirs, ours = next(iter(of_shard(0))), next(iter(of_shard(1)))
    await replicas.issue(theirs)
    await world.client.delete(CERTIFICATES, theirs, "default")
    await world.add(CERTIFICATES, make_certificate(ours, "ca", secret_name=theirs))
    assert await world.is_ready(ours)
    assert ObjectKey("default", theirs) in replicas.caches(1).secrets.informers[0].cache


async def test_an_issuer_that_one_replica_records_as_failing_fails_for_all(replicas: Replicas) -> None:
    world = replicas.world
    vault = {"server": "https://127.0.0.1:1", "path": "pki/sign/x", "auth": {"tokenSecretRef": {"name": "t"}}}
    issuer = {"metadata": {"name": "vault", "namespace": "default"}, "spec": {"vault": vault}}
    await world.add(ISSUERS, codec.from_dict(ISSUERS, issuer))
    record = write_breaker(BreakerRecord(state="Open", since=world.clock.now()))
    await world.patch(ISSUERS, "vault", {"metadata": {"annotations": record}})
    for member in replicas.members:
        (state,) = member.wiring.gate.states()
        assert (state.name, state.state is State.CLOSED) == ("vault", False)


async def test_each_certificate_is_told_of_by_one_replica_in_the_metrics(replicas: Replicas) -> None:
    requested = [next(iter(of_shard(shard))) for shard in range(COUNT)]
    await replicas.issue(*requested)
    for shard, member in enumerate(replicas.members):
        text = member.metrics.take()().decode()
        reported = [f'certificate_ready_status{{name="{name}"' in text for name in requested]
        assert reported == [shard == number for number in range(COUNT)]


async def test_an_order_whose_request_is_another_shards_is_not_asked_for_again(replicas: Replicas) -> None:
    name = next(iter(of_shard(0)))
    await replicas.issue(name)
    request = (await replicas.world.client.list(CERTIFICATE_REQUESTS, "default")).items
    key = next(obj.metadata.key for obj in request if obj.metadata.name == f"{name}-1")
    assert replicas.caches(1).is_others_request(key)
    assert not replicas.caches(0).is_others_request(key)
