"""Informers that cache some of very many objects: by their bytes, or metadata only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.client.filtered_informer import (
    Identified,
    Names,
    NamesByValue,
    PartialInformer,
    SelectiveInformer,
    follow_some,
    identities,
)
from certwright.kube.client.informer import Informer, identity
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Request, Response
from certwright.kube.util.tasks import TaskSet
from support.world import ADMIN, World


@pytest.fixture
async def tasks() -> AsyncIterator[TaskSet]:
    made = TaskSet()
    yield made
    await made.close()


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def value_of(raw: msgspec.Raw) -> str:
    return str(msgspec.json.decode(raw)["data"]["of"])


async def create(world: World, name: str, of: str) -> None:
    meta = ObjectMeta(name=name, namespace="default")
    await world.create(CONFIG_MAPS, ConfigMap(metadata=meta, data={"of": of}))


async def change(world: World, name: str, of: str) -> None:
    await world.client.patch(CONFIG_MAPS, name, "default", {"data": {"of": of}})
    await world.settle()


class Counting(PartialInformer[ConfigMap]):
    """Of what is `of` us. `told` has the old and new values of what it has told, `decoded` the names of what
    it has decoded."""

    def __init__(self, world: World) -> None:
        super().__init__(
            world.client,
            CONFIG_MAPS,
            world.clock,
            keep=lambda raw: value_of(raw) == "ours",
            found_by=value_of,
            namespace="default",
        )
        self.decoded: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.add_handler(lambda old, new: self.told.append((_told(old), _told(new))))

    def _decode(self, raw: msgspec.Raw) -> ConfigMap | None:
        obj = super()._decode(raw)
        self.decoded.append(obj.metadata.name if obj is not None else "")
        return obj


def _told(obj: ConfigMap | None) -> str:
    return obj.data["of"] if obj is not None else ""


async def follow(world: World, tasks: TaskSet) -> Counting:
    """A copy that follows the server."""
    informer = Counting(world)
    tasks.start(informer.run(), name="informer")
    await world.settle()
    assert informer.synced.is_set()
    return informer


async def test_what_is_left_out_is_not_decoded_and_its_name_is_known(world: World, tasks: TaskSet) -> None:
    for name, of in (("a", "ours"), ("b", "theirs")):
        await create(world, name, of)
    informer = await follow(world, tasks)
    await create(world, "c", "theirs")
    await change(world, "b", "others")
    await change(world, "c", "others")
    assert informer.decoded == ["a"]
    assert list(informer.cache.keys()) == [key("a")]
    assert [key(name) in informer.others for name in "abcd"] == [False, True, True, False]
    assert informer.told == [("", "ours")]


async def test_one_that_changes_hands_is_told_of_on_both_sides(world: World, tasks: TaskSet) -> None:
    await create(world, "a", "ours")
    informer = await follow(world, tasks)
    await change(world, "a", "theirs")
    assert (len(informer.cache), key("a") in informer.others) == (0, True)
    await change(world, "a", "ours")
    assert (len(informer.cache), key("a") in informer.others) == (1, False)
    assert informer.told == [("", "ours"), ("ours", "theirs"), ("", "ours")]


async def test_what_was_read_is_held_until_its_next_change(world: World, tasks: TaskSet) -> None:
    await create(world, "a", "theirs")
    informer = await follow(world, tasks)
    informer.put(await world.client.get(CONFIG_MAPS, "a", "default"))
    assert (len(informer.cache), key("a") in informer.others) == (1, False)
    await change(world, "a", "others")
    assert (len(informer.cache), key("a") in informer.others) == (0, True)
    assert informer.told == [("", "theirs"), ("theirs", "others")]


async def test_those_that_are_left_out_are_found_by_their_value_while_they_are_there(
    world: World, tasks: TaskSet
) -> None:
    for name in ("a", "b"):
        await create(world, name, "theirs")
    informer = await follow(world, tasks)
    await create(world, "c", "theirs")
    await world.settle()
    assert set(informer.others_by("theirs")) == {key("a"), key("b"), key("c")}
    for name in ("a", "b", "c"):
        await world.client.delete(CONFIG_MAPS, name, "default")
        await world.settle()
        assert key(name) not in informer.others_by("theirs")
        assert key(name) not in informer.others


async def test_a_list_shows_what_is_left_out_and_what_has_gone(world: World, tasks: TaskSet) -> None:
    for name in ("a", "b"):
        await create(world, name, "theirs")
    informer = await follow(world, tasks)
    await tasks.close()
    await world.client.delete(CONFIG_MAPS, "a", "default")
    await create(world, "c", "theirs")
    tasks.start(informer.run(), name="informer")
    await world.settle()
    assert [key(name) in informer.others for name in ("a", "b", "c")] == [False, True, True]
    assert set(informer.others_by("theirs")) == {key("b"), key("c")}


async def test_a_comparison_misses_nothing_of_what_is_left_out(world: World, tasks: TaskSet) -> None:
    """It is done with metadata only, by which nobody can tell whose an object is."""
    for name, of in (("a", "ours"), ("b", "theirs")):
        await create(world, name, of)
    informer = await follow(world, tasks)
    page = await informer._client.list_page(CONFIG_MAPS, namespace="default", metadata_only=True)
    revision = int(page.resource_version)
    mine = [raw for raw in page.items if b'"a"' in bytes(raw) or b'"b"' in bytes(raw)]
    assert [informer._is_missed(raw, revision, revision) for raw in mine] == [False, False]
    informer.others.discard(key("b"))
    assert sum(informer._is_missed(raw, revision, revision) for raw in mine) == 1


async def test_who_keeps_everything_needs_no_look_at_the_bytes(world: World) -> None:
    informer = follow_some(world.client, CONFIG_MAPS, world.clock, keep=None)
    assert type(informer) is Informer


def test_names_are_found_by_each_of_their_values() -> None:
    names = NamesByValue()
    names.add("x", key("a"))
    names.add("x", key("b"))
    names.add("x", key("a"))
    assert names.keys("x") == (key("a"), key("b"))
    names.discard("x", key("a"))
    names.discard("y", key("a"))
    assert names.keys("x") == (key("b"),)
    names.discard("x", key("b"))
    assert names.keys("x") == ()


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
        meta = ObjectMeta(name=f"a-{number}", namespace="default")
        await world.create(CONFIG_MAPS, ConfigMap(metadata=meta, data={"big": "x" * 1000}))
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
