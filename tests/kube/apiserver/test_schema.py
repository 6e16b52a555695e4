"""Pruning, defaulting and checking objects by a structural schema.

The expected texts were compared with the answers of Kubernetes' own server (apiextensions-apiserver 0.35).
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.apiserver.base.string_formats import FORMATS, check_for
from certwright.kube.apiserver.schemas.structural import Schema

STRING = {"type": "string"}
PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"type": "string", "enum": ["x", "y"]},
        "b": {"type": "integer", "default": 3, "maximum": 5},
        "l": {"type": "array", "items": STRING, "maxItems": 2, "x-kubernetes-list-type": "set"},
        "p": {"type": "string", "pattern": "^a+$"},
        "s": {"type": "string", "minLength": 2, "maxLength": 4},
        "d": {"type": "string", "format": "date-time"},
        "m": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": STRING, "v": {"type": "integer", "default": 7}},
            },
        },
        "i": {"x-kubernetes-int-or-string": True},
        "o": {
            "type": "object",
            "oneOf": [{"required": ["u"]}, {"required": ["w"]}],
            "properties": {"u": STRING, "w": STRING},
        },
        "any": {
            "type": "object",
            **PRESERVE,
            "properties": {"known": {"type": "object", "properties": {"z": STRING}}},
        },
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "maps": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"z": STRING}},
        },
        "n": {"type": "string", "nullable": True},
        "by": {"type": "string", "format": "byte"},
        "num": {"type": "number", "minimum": 1, "exclusiveMinimum": True},
        "emb": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"q": STRING}},
        "dm": {"type": "object", "default": {"z": "made"}, "properties": {"z": STRING}},
    },
}
SCHEMA = Schema({"type": "object", "properties": {"spec": SPEC, "status": {"type": "object"}}})


def foo(spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": spec}


def test_a_default_is_never_shared_between_objects() -> None:
    one, two = foo({"a": "x"}), foo({"a": "x"})
    SCHEMA.process(one)
    SCHEMA.process(two)
    one["spec"]["dm"]["z"] = "changed"
    assert two["spec"]["dm"] == {"z": "made"}


def test_a_property_that_is_named_like_the_rules_keyword_is_no_rule() -> None:
    assert not Schema({"type": "object", "properties": {"a": {"type": "string"}}}).has_rules


def test_a_schema_that_says_nothing_keeps_only_the_frame() -> None:
    obj = {"apiVersion": "v1", "kind": "X", "metadata": {}, "spec": {}}
    assert Schema().process(obj) == ["spec"]


RECORDED = json.loads((Path(__file__).parent / "data" / "formats.json").read_text())
"""Texts, and which of them strfmt accepts; see `tests/go/openapi/formats`."""


@pytest.mark.parametrize("name", [*RECORDED["accepted"]])
def test_a_format_accepts_the_texts_that_strfmt_accepts(name: str) -> None:
    accepts = check_for(name)
    assert accepts is not None
    accepted = {RECORDED["texts"][index] for index in RECORDED["accepted"][name]}
    assert {text for text in RECORDED["texts"] if accepts(text)} == accepted


def test_every_format_of_strfmt_is_checked_and_no_other() -> None:
    assert {name.replace("-", "") for name in RECORDED["accepted"]} == set(FORMATS)


@pytest.mark.parametrize("name", [*FORMATS])
def test_a_long_text_takes_linear_time(name: str) -> None:
    accepts = check_for(name)
    assert accepts is not None
    for part in ("1", "1 ", "a", "a.", "(", "a ", " ", "0", "0:", "::", "%", '"', "[", "a@"):
        accepts(part * 20_000)


def test_a_pattern_that_would_backtrack_for_ever_is_answered_at_once() -> None:
    schema = Schema({"type": "object", "properties": {"v": {"type": "string", "pattern": "^(a+)+$"}}})
    assert len(schema.validate({"v": "a" * 5000 + "!"})) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from(["x", "y", "a", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SPEC["properties"], "k", "u", "z", "zzz"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_comes_in_nothing_breaks_and_processing_twice_changes_nothing(spec: Any) -> None:
    obj = foo(spec)
    SCHEMA.process(obj)
    once = copy.deepcopy(obj)
    assert SCHEMA.process(obj) == []
    assert obj == once
    first = SCHEMA.validate(obj)
    assert [str(error) for error in first] == [str(error) for error in SCHEMA.validate(obj)]
