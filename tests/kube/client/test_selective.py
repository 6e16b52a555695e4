"""Copies that hold metadata of a few objects of very many."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.client.filtered_informer import Identified, Names, SelectiveInformer, identities
from certwright.kube.client.informer import identity
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Request, Response
from certwright.kube.util.tasks import TaskSet
from support.world import ADMIN, World


def config_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"big": "x" * 1000})


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


@pytest.fixture
async def tasks() -> AsyncIterator[TaskSet]:
    made = TaskSet()
    yield made
    await made.close()


async def test_only_metadata_comes_and_only_what_is_kept_is_held_and_told(
    world: World, tasks: TaskSet
) -> None:
    bodies: list[bytes] = []

    async def handle(request: Request) -> Response:
        response = await world.server.handle(request)
        bodies.append(response.body)
        return response

    client = Client(LocalTransport(handle, ADMIN), user_agent="test")
    kept, changes = {key("a-1")}, list[tuple[str, bool]]()
    informer: SelectiveInformer[Identified] = SelectiveInformer(
        client, identities(CONFIG_MAPS), world.clock, keep=lambda raw: identity(raw) in kept, page=2
    )
    informer.add_handler(
        lambda old, new: changes.append(((new or old or Identified()).metadata.name, new is not None))
    )
    for number in range(5):
        await world.create(CONFIG_MAPS, config_map(f"a-{number}"))
    tasks.start(informer.run(), name="informer")
    await world.settle()
    assert informer.synced.is_set()
    assert not any(b"xxxx" in body for body in bodies)
    assert list(informer.cache.keys()) == [key("a-1")]
    assert key("a-3") in informer.others
    kept.add(key("a-2"))
    for name in ("a-1", "a-2", "a-3"):
        await world.client.patch(CONFIG_MAPS, name, "default", {"data": {"k": "v"}})
    for name in ("a-2", "a-3"):
        await world.client.delete(CONFIG_MAPS, name, "default")
    await world.settle()
    assert changes == [("a-1", True), ("a-1", True), ("a-2", True), ("a-2", False)]
    # There is no other copy that it might have moved to.
    assert key("a-2") not in informer.others
    assert key("a-3") not in informer.others
    assert key("a-4") in informer.others


def test_a_name_that_has_left_is_known_until_both_sides_have_come_that_far() -> None:
    names = Names()
    names.add(key("a"))
    assert names.left_at(key("a")) == 0
    names.leave(key("a"), 7)
    names.forget_until(6)
    assert names.left_at(key("a")) == 7
    names.forget_until(7)
    assert key("a") not in names


def test_a_name_that_has_come_back_is_not_forgotten_with_its_leaving() -> None:
    names = Names()
    names.leave(key("a"), 7)
    names.add(key("a"))
    names.forget_until(100)
    assert names.left_at(key("a")) == 0
    names.leave(key("a"), 0)
    names.forget_until(10**9)
    assert key("a") in names
    names.discard(key("a"))
    assert len(names) == 0


def test_a_list_shows_which_names_have_left() -> None:
    names, listed = Names(), Names()
    for name in ("a", "b"):
        names.add(key(name))
    listed.add(key("b"))
    names.retain(listed, 9)
    assert (names.left_at(key("a")), names.left_at(key("b"))) == (9, 0)
