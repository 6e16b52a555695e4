"""The client and our own API server, in one process and over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from certwright.apiserver.server import ApiServer
from certwright.client import discovery
from certwright.client.informer import Informer
from certwright.client.local import LocalTransport
from certwright.client.rest import Client
from certwright.kit.clock import TestClock
from certwright.kit.exchange import Identity
from certwright.resources.certificate import Certificate, CertificateSpec, CertificateStatus
from certwright.resources.core import ConfigMap
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.errors import AlreadyExists, Conflict, NotFound
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.meta import ObjectKey, ObjectMeta
from certwright.resources.table import CERTIFICATES, CONFIG_MAPS
from certwright.store.memory import MemoryStore
from client.peers import run_all

ADMIN = Identity("admin", groups=("system:masters", "system:authenticated"))


@dataclass
class Scene:
    """A server, a client, and the clock of both."""

    server: ApiServer
    client: Client
    clock: TestClock

    async def follow(
        self, tasks: list[asyncio.Task[None]], *, labels: str = "", page: int = 500
    ) -> Informer[ConfigMap]:
        """An informer of ConfigMaps at work, after its first list."""
        informer = Informer(self.client, CONFIG_MAPS, self.clock, labels=labels, page=page)
        tasks.append(asyncio.ensure_future(informer.run()))
        await informer.synced.wait()
        return informer


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = TestClock()
    server = ApiServer(MemoryStore(), clock, authenticator=lambda _: None, bookmark_every_s=None)
    await server.start(custom_resource_definitions())
    yield Scene(server, Client(LocalTransport(server.handle, ADMIN), user_agent="test"), clock)
    await server.close()


@pytest.fixture
async def tasks() -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def config_map(name: str, *, label: str = "", **data: str) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace="default", labels={"app": label} if label else {})
    return ConfigMap(metadata=meta, data=data)


async def test_the_verbs(scene: Scene) -> None:
    client = scene.client
    made = await client.create(CONFIG_MAPS, config_map("a", k="1"))
    assert made.metadata.uid
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("a"))
    patched = await client.patch(CONFIG_MAPS, "a", "default", {"data": {"k": None, "l": "2"}})
    assert patched.data == {"l": "2"}
    with pytest.raises(Conflict):
        await client.update(CONFIG_MAPS, made)
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", "default", uid="another")
    await client.delete(CONFIG_MAPS, "a", "default", uid=made.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", "default")


async def test_a_dry_run_leaves_nothing_behind(scene: Scene) -> None:
    await scene.client.create(CONFIG_MAPS, config_map("a"), dry_run=True)
    with pytest.raises(NotFound):
        await scene.client.get(CONFIG_MAPS, "a", "default")


async def test_a_status_is_written_apart(scene: Scene) -> None:
    spec = CertificateSpec(secret_name="s", dns_names=("a.example",), issuer_ref=IssuerReference(name="i"))
    meta = ObjectMeta(name="web", namespace="default")
    made = await scene.client.create(CERTIFICATES, Certificate(metadata=meta, spec=spec))
    version = made.metadata.resource_version
    patch = {"metadata": {"resourceVersion": version}, "status": {"revision": 3}}
    written = await scene.client.patch(CERTIFICATES, "web", "default", patch, subresource="status")
    assert written.status == CertificateStatus(revision=3)
    with pytest.raises(Conflict):
        await scene.client.patch(CERTIFICATES, "web", "default", patch, subresource="status")


async def test_a_list_in_pages_is_the_list(scene: Scene) -> None:
    for number in range(7):
        await scene.client.create(CONFIG_MAPS, config_map(f"c{number}", label="x" if number % 2 else "y"))
    whole = await scene.client.list(CONFIG_MAPS, "default", labels="app=y")
    paged = await scene.client.list(CONFIG_MAPS, "default", labels="app=y", limit=2)
    assert [c.metadata.name for c in paged.items] == ["c0", "c2", "c4", "c6"]
    assert paged == whole


async def test_an_informer_follows(scene: Scene, tasks: list[asyncio.Task[None]]) -> None:
    for number in range(5):
        await scene.client.create(CONFIG_MAPS, config_map(f"c{number}"))
    informer = await scene.follow(tasks, page=2)
    assert len(informer.cache) == 5
    told: list[tuple[bool, bool]] = []
    informer.add_handler(lambda old, new: told.append((old is not None, new is not None)))
    told.clear()
    await scene.client.create(CONFIG_MAPS, config_map("new"))
    await scene.client.patch(CONFIG_MAPS, "c0", "default", {"data": {"x": "y"}})
    await scene.client.delete(CONFIG_MAPS, "c1", "default")
    await run_all()
    assert told == [(False, True), (True, True), (True, False)]
    held = informer.cache.get(ObjectKey("default", "c0"))
    assert held == await scene.client.get(CONFIG_MAPS, "c0", "default")


async def test_an_object_that_loses_its_label_is_gone_for_who_selects_by_it(
    scene: Scene, tasks: list[asyncio.Task[None]]
) -> None:
    await scene.client.create(CONFIG_MAPS, config_map("a", label="x"))
    informer = await scene.follow(tasks, labels="app=x")
    await scene.client.patch(CONFIG_MAPS, "a", "default", {"metadata": {"labels": {"app": "y"}}})
    await run_all()
    assert len(informer.cache) == 0
    await scene.client.patch(CONFIG_MAPS, "a", "default", {"metadata": {"labels": {"app": "x"}}})
    await run_all()
    assert len(informer.cache) == 1


async def test_own_writes_and_the_watch_agree(scene: Scene, tasks: list[asyncio.Task[None]]) -> None:
    informer = await scene.follow(tasks)
    told: list[str] = []
    informer.add_handler(lambda old, new: told.append(new.metadata.resource_version if new else "gone"))
    versions = []
    for number in range(10):
        name = f"c{number % 3}"
        made = (
            await scene.client.create(CONFIG_MAPS, config_map(name))
            if number < 3
            else await scene.client.patch(CONFIG_MAPS, name, "default", {"data": {"n": str(number)}})
        )
        informer.put(made)
        versions.append(made.metadata.resource_version)
    await run_all()
    assert told == versions


async def test_words_of_our_own_server(scene: Scene) -> None:
    for word, kind in (
        ("cert", "Certificate"),
        ("issuers", "Issuer"),
        ("cm", "ConfigMap"),
        ("crd", "CustomR"),
    ):
        assert (await discovery.resolve(scene.client, word)).kind.startswith(kind)
    kinds = {kind.kind for kind in await discovery.all_resources(scene.client)}
    assert {"Certificate", "Order", "Lease", "Secret", "Event"} <= kinds
