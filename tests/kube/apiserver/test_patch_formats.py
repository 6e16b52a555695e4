"""The patch formats on plain values, by the tables of their RFCs."""

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


# RFC 7386, Appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == result
    assert target == before


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


# RFC 6902, Appendix A, and the corners that it leaves to its text.
@pytest.mark.parametrize(
    ("document", "operation", "result"),
    [
        ({"foo": "bar"}, {"op": "add", "path": "/baz", "value": "qux"}, {"baz": "qux", "foo": "bar"}),
        ({"foo": ["a", "b"]}, {"op": "add", "path": "/foo/1", "value": "x"}, {"foo": ["a", "x", "b"]}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/-", "value": ["b"]}, {"foo": ["a", ["b"]]}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/1", "value": "b"}, {"foo": ["a", "b"]}),
        ({"baz": 1, "foo": 2}, {"op": "remove", "path": "/baz"}, {"foo": 2}),
        ({"foo": ["a", "b", "c"]}, {"op": "remove", "path": "/foo/1"}, {"foo": ["a", "c"]}),
        ({"baz": 1}, {"op": "replace", "path": "/baz", "value": 2}, {"baz": 2}),
        (
            {"foo": {"bar": 1, "waldo": 2}, "qux": {}},
            {"op": "move", "from": "/foo/waldo", "path": "/qux/thud"},
            {"foo": {"bar": 1}, "qux": {"thud": 2}},
        ),
        (
            {"foo": ["a", "b", "c"]},
            {"op": "move", "from": "/foo/0", "path": "/foo/2"},
            {"foo": ["b", "c", "a"]},
        ),
        ({"a": {"b": 1}}, {"op": "copy", "from": "/a", "path": "/c"}, {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a": ["b", 2]}, {"op": "test", "path": "/a/1", "value": 2}, {"a": ["b", 2]}),
        ({"/": 9, "~1": 10}, {"op": "test", "path": "/~01", "value": 10}, {"/": 9, "~1": 10}),
        ({"a": 1}, {"op": "add", "path": "", "value": {"b": 2}}, {"b": 2}),
        ({"a": 1}, {"op": "replace", "path": "", "value": 3}, 3),
        ({"": 1}, {"op": "remove", "path": "/"}, {}),
        ({"a": None}, {"op": "test", "path": "/a"}, {"a": None}),
    ],
)
def test_json_patches_of_the_rfc(document: Any, operation: dict[str, Any], result: Any) -> None:
    assert json_patch(document, [operation]) == result


# Where Kubernetes is laxer than the RFC.
@pytest.mark.parametrize(
    ("operations", "result"),
    [
        (None, {"a": 1}),
        ([{"op": "replace", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ([{"op": "replace", "path": "/a"}], {"a": None}),
        ([{"op": "test", "path": "/b", "value": None}], {"a": 1}),
    ],
)
def test_json_patches_are_applied_as_kubernetes_does(operations: Any, result: Any) -> None:
    assert json_patch({"a": 1}, operations) == result


@pytest.mark.parametrize(
    ("document", "operation"),
    [
        ({"foo": "bar"}, {"op": "add", "path": "/baz/bat", "value": "qux"}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/2", "value": "x"}),
        ({"foo": ["a"]}, {"op": "add", "path": "/foo/01", "value": "x"}),
        ({"foo": ["a"]}, {"op": "replace", "path": "/foo/-", "value": "x"}),
        ({"foo": ["a"]}, {"op": "replace", "path": "/foo/99999999999999999999", "value": "x"}),
        ({"foo": "a"}, {"op": "add", "path": "/foo/x", "value": "x"}),
        ({}, {"op": "remove", "path": "/foo"}),
        ({"foo": 1}, {"op": "replace", "path": "/foo/bar", "value": 1}),
        ({}, {"op": "remove", "path": ""}),
        ({}, {"op": "add", "path": "a", "value": 1}),
        ({}, {"op": "x", "path": ""}),
        ({}, {}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": "/a/b"}),
        ({"a": 1}, {"op": "test", "path": "/a", "value": True}),
        ({"a": 1}, {"op": "test", "path": "/b", "value": 1}),
    ],
)
def test_json_patches_that_fail(document: Any, operation: dict[str, Any]) -> None:
    with pytest.raises(PatchFailed):
        json_patch(document, [operation])


@pytest.mark.parametrize(
    "patch",
    [
        {},
        [1],
        "x",
    ],
)
def test_json_patches_that_are_none(patch: Any) -> None:
    with pytest.raises(PatchMalformed):
        json_patch({}, patch)


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
