"""The patch formats on plain values. What custom resources show of them is in `story_patches`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.apiserver.requests.patch import (
    PatchFailed,
    PatchMalformed,
    json_patch,
    merge_patch,
    strategic_merge,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON_VALUES, JSON_VALUES)
def test_a_merge_patch_applied_again_changes_nothing(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    # A list that replaces a map keeps the nulls of its maps, and loses them when it is sent again.
    twice = merge_patch(once, patch)
    assert merge_patch(twice, patch) == twice


def test_nulls_in_a_list_go_unless_it_replaces_a_map() -> None:
    patch = {"a": [{"x": None, "y": 1}, None]}
    assert merge_patch({}, patch) == {"a": [{"y": 1}, None]}
    assert merge_patch({"a": [2]}, patch) == {"a": [{"y": 1}, None]}
    assert merge_patch({"a": {"b": 1}}, patch) == patch


def test_an_index_has_no_leading_zero() -> None:
    """RFC 6901 §4; Kubernetes' own server takes it."""
    with pytest.raises(PatchFailed):
        json_patch({"foo": ["a"]}, [{"op": "add", "path": "/foo/01", "value": "x"}])


@given(JSON_VALUES, st.text("/~01ab-", max_size=6), JSON_VALUES)
def test_whatever_the_pointer_only_our_errors_come_out(document: Any, path: str, value: Any) -> None:
    for op in ("add", "remove", "replace", "test", "move", "copy"):
        operation = {"op": op, "path": path, "from": path, "value": value}
        try:
            json_patch(copy.deepcopy(document), [operation])
        except (PatchFailed, PatchMalformed):
            continue


KEYS = {
    ("items",): "name",
    ("items", "ports"): "port",
    ("set",): "",
    ("metadata", "ownerReferences"): "uid",
    ("metadata", "finalizers"): "",
}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": 1}, {"a": None}, {}),
        ({"plain": [1, 2]}, {"plain": [3]}, {"plain": [3]}),
        (
            {"items": [{"name": "x", "v": 1}, {"name": "y"}]},
            {"items": [{"name": "x", "v": 2}, {"name": "z"}]},
            {"items": [{"name": "x", "v": 2}, {"name": "y"}, {"name": "z"}]},
        ),
        (
            {"items": [{"name": "x"}, {"name": "y"}]},
            {"items": [{"name": "x", "$patch": "delete"}]},
            {"items": [{"name": "y"}]},
        ),
        (
            {"items": [{"name": "x"}]},
            {"items": [{"name": "y"}, {"$patch": "replace"}]},
            {"items": [{"name": "y"}]},
        ),
        (
            {"items": [{"name": "x", "ports": [{"port": 1, "p": "t"}]}]},
            {"items": [{"name": "x", "ports": [{"port": 1, "p": "u"}, {"port": 2}]}]},
            {"items": [{"name": "x", "ports": [{"port": 1, "p": "u"}, {"port": 2}]}]},
        ),
        ({"set": ["a", "b"]}, {"set": ["b", "c"]}, {"set": ["a", "b", "c"]}),
        ({"set": ["a", "b"]}, {"$deleteFromPrimitiveList/set": ["a"]}, {"set": ["b"]}),
        ({"set": ["a", "b"]}, {"$setElementOrder/set": ["b", "a"]}, {"set": ["b", "a"]}),
        (
            {"items": [{"name": "x"}, {"name": "y"}]},
            {
                "$setElementOrder/items": [{"name": "z"}, {"name": "y"}, {"name": "x"}],
                "items": [{"name": "z"}],
            },
            {"items": [{"name": "z"}, {"name": "y"}, {"name": "x"}]},
        ),
        (
            {"items": [{"name": "x", "v": 1}, {"name": "x", "v": 2}, {"name": "y"}]},
            {"items": [{"name": "x", "$patch": "delete"}, {"name": "x", "v": 3}]},
            {"items": [{"name": "x", "v": 3}, {"name": "y"}]},
        ),
        (
            {"items": [{"name": "x", "$patch": "delete"}]},
            {"items": [{"name": "y", "v": 1}, {"name": "y", "w": 2}, {"name": "x", "$patch": "delete"}]},
            {"items": [{"name": "y", "v": 1, "w": 2}]},
        ),
        (
            {"items": [{"name": 1}, {"name": True}, {"name": "1"}, {"name": [1]}]},
            {"items": [{"name": True, "v": 1}, {"name": [1], "v": 2}, {"name": 1.0}]},
            {
                "items": [
                    {"name": 1},
                    {"name": True, "v": 1},
                    {"name": "1"},
                    {"name": [1], "v": 2},
                    {"name": 1.0},
                ]
            },
        ),
        ({"set": [1, True]}, {"$deleteFromPrimitiveList/set": [True]}, {"set": [1]}),
        ({"set": ["a", "c", "b"]}, {"$setElementOrder/set": ["b", "a", "b"]}, {"set": ["b", "a", "c"]}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}, "c": 1}, {"a": {"$patch": "delete"}}, {"c": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["c"], "c": 3}}, {"a": {"c": 3}}),
        ({}, {"a": {"b": None, "c": {"d": None}}}, {"a": {"c": {}}}),
        (
            {"metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1", "name": "x"}]}},
            {"metadata": {"finalizers": ["b"], "ownerReferences": [{"uid": "1", "name": "y"}]}},
            {"metadata": {"finalizers": ["a", "b"], "ownerReferences": [{"uid": "1", "name": "y"}]}},
        ),
    ],
)
def test_strategic_merges(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert strategic_merge(target, patch, KEYS) == result
    assert target == before


@pytest.mark.parametrize(
    "patch",
    [
        [],
        {"a": {"$patch": "shuffle"}},
        {"items": [{"v": 1}]},
        {"items": ["x"]},
        {"$deleteFromPrimitiveList/set": 1},
        {"$retainKeys": 1},
        {"a": {"$retainKeys": ["b"], "b": 1, "c": 2}},
        {"$setElementOrder/set": 1},
        {"$setElementOrder/set": ["a"], "set": ["b"]},
        {"$setElementOrder/set": ["a", "b"], "set": ["b", "a"]},
        {"$setElementOrder/items": [{"name": "a"}], "items": [{"name": "b"}]},
    ],
)
def test_strategic_patches_that_are_none(patch: Any) -> None:
    with pytest.raises(PatchMalformed):
        strategic_merge({"set": ["a"]}, patch, KEYS)
