"""What apply has to change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.cli.applier import LAST_APPLIED, last_applied, three_way_patch, with_last_applied

Json = dict[str, Any]


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386 §2, as an oracle."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


@pytest.mark.parametrize(
    ("last", "desired", "live", "patch"),
    [
        pytest.param({"a": 1}, {"a": 1}, {"a": 1, "b": 2}, {}, id="what others added stays"),
        pytest.param({}, {"a": 1}, {}, {"a": 1}, id="what is new is added"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}, id="what changed is changed"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 2}, {"b": None}, id="what was taken out goes"),
        pytest.param({"b": 2}, {}, {}, {}, id="what is gone already is not taken out again"),
        pytest.param({"a": 1}, {"a": 1}, {"a": 5}, {"a": 1}, id="what others changed is changed back"),
        pytest.param({"l": [1]}, {"l": [1, 2]}, {"l": [1]}, {"l": [1, 2]}, id="lists are replaced whole"),
        pytest.param(
            {"s": {"a": 1, "b": 1}},
            {"s": {"a": 2}},
            {"s": {"a": 1, "b": 1, "c": 1}},
            {"s": {"a": 2, "b": None}},
            id="all of that inside objects too",
        ),
        pytest.param({}, {"a": True}, {"a": 1}, {"a": True}, id="true is not one"),
        pytest.param({}, {"a": {"b": 1}}, {"a": "x"}, {"a": {"b": 1}}, id="an object replaces a text"),
    ],
)
def test_a_patch_changes_what_the_user_changed(last: Json, desired: Json, live: Json, patch: Json) -> None:
    assert three_way_patch(last, desired, live) == patch


_objects: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 3) | st.booleans() | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
_documents = st.dictionaries(st.sampled_from("abcd"), _objects, max_size=4)


@given(_documents, _documents, _documents)
def test_applying_twice_changes_nothing_the_second_time(last: Json, desired: Json, live: Json) -> None:
    after = merge(live, three_way_patch(last, desired, live))
    assert three_way_patch(desired, desired, after) == {}


@given(_documents, _documents)
def test_with_nobody_else_writing_the_result_is_what_is_wanted(last: Json, desired: Json) -> None:
    assert merge(last, three_way_patch(last, desired, last)) == desired


def test_the_annotation_is_kubectls_letter_for_letter() -> None:
    manifest = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "x", "namespace": "default"},
        "data": {"q": "a<b&c>d"},
    }
    # What `kubectl apply -f` of version 1.32 writes for the same document.
    assert with_last_applied(manifest)["metadata"]["annotations"][LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"q":"a\\u003cb\\u0026c\\u003ed"},"kind":"ConfigMap",'
        '"metadata":{"annotations":{},"name":"x","namespace":"default"}}\n'
    )


def test_the_annotation_never_holds_an_older_one_of_itself() -> None:
    once = with_last_applied({"metadata": {"name": "x", "annotations": {"a": "1"}}})
    twice = with_last_applied(once)
    assert twice == once
    last = last_applied(twice)
    assert last is not None
    assert last["metadata"]["annotations"] == {"a": "1"}


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"'])
def test_a_broken_annotation_counts_as_none(text: str) -> None:
    assert last_applied({"metadata": {"annotations": {LAST_APPLIED: text}}}) is None
    assert last_applied({}) is None


def test_numbers_keep_their_size_in_the_annotation() -> None:
    big = 2**70
    text = with_last_applied({"metadata": {}, "n": big})["metadata"]["annotations"][LAST_APPLIED]
    assert msgspec.json.decode(text)["n"] == big
