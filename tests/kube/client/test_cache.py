from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.api.core import ConfigMap
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.kube.client.cache import Cache


def config_map(name: str, revision: int, **data: str) -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(name=name, namespace="default", resource_version=str(revision)), data=data
    )


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)


def test_an_older_object_is_ignored() -> None:
    cache: Cache[ConfigMap] = Cache()
    new = config_map("a", 7)
    assert cache.upsert(new) is None
    assert cache.upsert(config_map("a", 5)) is new
    assert cache.get(key("a")) is new


def test_the_same_revision_again_is_no_news() -> None:
    cache: Cache[ConfigMap] = Cache()
    cache.upsert(config_map("a", 7))
    assert not cache.accepts(config_map("a", 7))
    assert cache.accepts(config_map("a", 8))


def test_an_answer_that_comes_after_the_deletion_does_not_bring_the_object_back() -> None:
    cache: Cache[ConfigMap] = Cache()
    cache.upsert(config_map("a", 7))
    assert cache.remove(key("a"), 9) is not None
    cache.upsert(config_map("a", 8))
    assert key("a") not in cache
    cache.upsert(config_map("a", 10))
    assert key("a") in cache


def test_news_of_an_old_deletion_does_not_remove_what_was_made_since() -> None:
    cache: Cache[ConfigMap] = Cache()
    cache.upsert(config_map("a", 12))
    assert cache.remove(key("a"), 9) is None
    assert key("a") in cache


def test_a_deletion_is_remembered_also_where_nothing_was_held() -> None:
    cache: Cache[ConfigMap] = Cache()
    cache.remove(key("a"), 9)
    assert cache.upsert(config_map("a", 8)) is None
    assert len(cache) == 0


def test_a_list_drops_what_it_lacks_but_not_what_is_newer_than_itself() -> None:
    cache: Cache[ConfigMap] = Cache()
    old, newer = config_map("old", 3), config_map("newer", 12)
    cache.upsert(old)
    cache.upsert(newer)
    assert cache.replace([config_map("a", 5)], 10) == [old]
    assert set(cache.keys()) == {key("a"), key("newer")}


def test_tombstones_do_not_pile_up() -> None:
    cache: Cache[ConfigMap] = Cache()
    for number in range(5000):
        cache.remove(key(f"c{number}"), number + 1)
    assert len(cache._tombstones) <= 1024


def test_an_index_follows_its_objects() -> None:
    cache: Cache[ConfigMap] = Cache({"owner": lambda c: c.data.values()})
    cache.upsert(config_map("a", 1, owner="x"))
    cache.upsert(config_map("b", 2, owner="x"))
    cache.upsert(config_map("a", 3, owner="y"))
    assert [c.metadata.name for c in cache.by_index("owner", "x")] == ["b"]
    assert [c.metadata.resource_version for c in cache.by_index("owner", "y")] == ["3"]
    cache.remove(key("b"), 4)
    assert cache.by_index("owner", "x") == []
    with pytest.raises(KeyError):
        cache.by_index("no such index", "x")


def test_an_index_function_that_fails_places_the_object_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    cache: Cache[ConfigMap] = Cache({"owner": lambda c: [c.data["owner"]]})
    cache.upsert(config_map("a", 1))
    assert key("a") in cache
    assert "index owner: cannot place default/a" in caplog.text


Steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 30), st.sampled_from(["put", "gone"]), st.integers(0, 2))
)


@given(Steps)
def test_indexes_always_agree_with_the_objects(steps: list[tuple[str, int, str, int]]) -> None:
    cache: Cache[ConfigMap] = Cache({"v": lambda c: c.data.values()})
    for name, revision, what, value in steps:
        if what == "put":
            cache.upsert(config_map(name, revision, v=str(value)))
        else:
            cache.remove(key(name), revision)
        for number in "012":
            names = {c.metadata.name for c in cache.values() if c.data["v"] == number}
            assert {c.metadata.name for c in cache.by_index("v", number)} == names
