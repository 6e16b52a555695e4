"""Objects held in little memory: they are what they were."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.api.core import ConfigMap
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.client.cache import Cache
from certwright.kube.client.compressed import PackedObjects, Packing

TEXT: Packing[str] = Packing(str.encode, bytes.decode, note=len)
NAMES = ("a", "b", "c", "d", "e")


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def config(name: str, revision: int, colour: str) -> ConfigMap:
    meta = ObjectMeta(name=name, namespace="default", resource_version=str(revision))
    return ConfigMap(metadata=meta, data={"colour": colour} if colour else {})


def packing_of_config_maps() -> Packing[ConfigMap]:
    return Packing(msgspec.msgpack.encode, msgspec.msgpack.Decoder(ConfigMap).decode)


@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.text(max_size=30) | st.none(), st.integers(0, 2**70)),
        max_size=60,
    )
)
def test_packed_objects_are_those_of_a_dict(steps: list[tuple[str, str | None, int]]) -> None:
    packed, plain = PackedObjects(TEXT, fresh=2, read=1), OrderedDict[ObjectKey, tuple[str, int]]()
    for name, text, revision in steps:
        if text is not None:
            packed.put(key(name), text, revision)
            plain[key(name)] = text, revision
        elif key(name) in plain:
            packed.drop(key(name))
            del plain[key(name)]
        assert set(packed) == set(plain)
        assert len(packed) == len(plain)
        for object_key in map(key, NAMES):
            assert (packed.get(object_key), packed.revision(object_key)) == plain.get(
                object_key, (None, None)
            )
            assert (object_key in packed) == (object_key in plain)
            assert packed.note(object_key) == len(plain.get(object_key, ("", 0))[0])
        assert sorted(packed.freeze()()) == sorted(text for text, _ in plain.values())


@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(("", "red", "blue")), st.integers(1, 9)),
        max_size=40,
    ),
    st.booleans(),
)
def test_a_cache_that_packs_answers_as_one_that_does_not(
    steps: list[tuple[str, str, int]], forget: bool
) -> None:
    by_colour = {"colour": lambda obj: tuple(obj.data.values())}
    packing, plain = Cache(by_colour, packing=packing_of_config_maps()), Cache[ConfigMap](by_colour)
    packing._objects = PackedObjects(packing_of_config_maps(), fresh=1, read=1)
    for name, colour, revision in steps:
        if forget and not colour:
            assert packing.remove(key(name), revision) == plain.remove(key(name), revision)
        else:
            obj = config(name, revision, colour)
            assert packing.accepts(obj) == plain.accepts(obj)
            assert packing.upsert(obj) == plain.upsert(obj)
        for value in ("red", "blue"):
            selected, expected = packing.by_index("colour", value), plain.by_index("colour", value)
            assert sorted(selected, key=str) == sorted(expected, key=str)
        assert sorted(packing.values(), key=str) == sorted(plain.values(), key=str)


def test_what_was_frozen_does_not_change_any_more() -> None:
    packed = PackedObjects(TEXT, fresh=1)
    for name in NAMES:
        packed.put(key(name), name, 1)
    frozen = packed.freeze()
    packed.put(key("a"), "another", 2)
    packed.drop(key("b"))
    assert sorted(frozen()) == sorted(frozen()) == list(NAMES)


def test_what_was_frozen_can_be_read_in_another_thread_while_more_is_packed() -> None:
    packed = PackedObjects(TEXT, fresh=1, read=1)
    texts = [f"what they have in common {n}" for n in range(2_000)]
    for n, text in enumerate(texts):
        packed.put(key(str(n)), text, n)
    frozen = packed.freeze()
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(lambda: sorted(frozen())) for _ in range(2)]
        for n in range(2_000):
            packed.put(key(str(n)), str(n), n)
            packed.get(key(str(n // 2)))
    assert [future.result() for future in futures] == [sorted(texts)] * 2


def test_where_nothing_may_be_a_sample_everything_is_packed_all_the_same() -> None:
    asked: list[str] = []

    def is_sample(text: str) -> bool:
        asked.append(text)
        return False

    packed = PackedObjects(Packing(str.encode, bytes.decode, is_sample=is_sample), fresh=4)
    for n in range(400):
        packed.put(key(str(n)), str(n), n)
    assert sorted(packed.freeze()()) == sorted(map(str, range(400)))
    assert len(asked) < 400
