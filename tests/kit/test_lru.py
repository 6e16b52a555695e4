"""The values that were asked for last."""

from __future__ import annotations

from certwright.kube.util.caches import Lru


def test_what_was_asked_for_last_stays_when_there_are_too_many() -> None:
    lru: Lru[str, int] = Lru(2)
    assert [lru.put(name, number) for number, name in enumerate("ab")] == [0, 1]
    assert lru.get("a") == 0
    lru.put("c", 2)
    assert [lru.get(name) for name in "abc"] == [0, None, 2]


def test_a_value_that_is_kept_anew_takes_the_place_of_the_one_before() -> None:
    lru: Lru[str, int] = Lru(2)
    for name, number in (("a", 0), ("b", 1), ("a", 2), ("c", 3)):
        lru.put(name, number)
    assert [lru.get(name) for name in "abc"] == [2, None, 3]


def test_what_is_dropped_is_forgotten_also_where_it_was_never_there() -> None:
    lru: Lru[str, int] = Lru(2)
    lru.put("a", 0)
    lru.drop("a")
    lru.drop("a")
    assert lru.get("a") is None
