"""Objects held in little memory: they are what they were."""

from __future__ import annotations

import os
from collections import OrderedDict

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from certwright.client.cache import Cache
from certwright.client.packed import PackedObjects, Packing
from certwright.client.press import Press
from certwright.resources.core import ConfigMap
from certwright.resources.meta import ObjectKey, ObjectMeta

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
@settings(max_examples=60, deadline=None)
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
        for one in map(key, NAMES):
            assert (packed.get(one), packed.revision(one)) == plain.get(one, (None, None))
            assert (one in packed) == (one in plain)
            assert packed.note(one) == len(plain.get(one, ("", 0))[0])
        assert sorted(packed.freeze()()) == sorted(text for text, _ in plain.values())


@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(("", "red", "blue")), st.integers(1, 9)),
        max_size=40,
    ),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
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
            found, expected = packing.by_index("colour", value), plain.by_index("colour", value)
            assert sorted(found, key=str) == sorted(expected, key=str)
        assert sorted(packing.values(), key=str) == sorted(plain.values(), key=str)


def test_what_was_frozen_does_not_change_any_more() -> None:
    packed = PackedObjects(TEXT, fresh=1)
    for name in NAMES:
        packed.put(key(name), name, 1)
    frozen = packed.freeze()
    packed.put(key("a"), "another", 2)
    packed.drop(key("b"))
    assert sorted(frozen()) == sorted(frozen()) == list(NAMES)


def test_texts_that_resemble_each_other_take_little() -> None:
    press = Press()
    common = os.urandom(2_000)
    texts = [b"text %d: " % n + common + os.urandom(20) for n in range(50)]
    press.learn(texts[:5])
    pressed = [press.press(text) for text in texts]
    assert [press.restore(one) for one in pressed] == texts
    assert max(map(len, pressed)) < 80


def test_a_dictionary_that_no_longer_fits_is_replaced_and_old_texts_stay_readable() -> None:
    press = Press()
    old, new = os.urandom(2_000), os.urandom(2_000)
    wishes = [press.wants_samples]
    press.learn([old])
    first = press.press(old)
    for text in (old, new):
        for _ in range(600):
            press.press(text)
        wishes.append(press.wants_samples)
    press.learn([new])
    wishes.append(press.wants_samples)
    assert wishes == [True, False, True, False]
    assert len(press.press(new)) < 100
    assert press.restore(first) == old
