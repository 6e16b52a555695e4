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


def errors_of(spec: Any) -> list[str]:
    obj = foo(spec)
    SCHEMA.process(obj)
    return [str(error) for error in SCHEMA.validate(obj)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["spec.a: Required value"]),
        (
            "text",
            ['spec: Invalid value: "string": spec in body must be of type object: "string"'],
        ),
        ({"a": "z"}, ['spec.a: Unsupported value: "z": supported values: "x", "y"']),
        (
            {"a": 5},
            [
                'spec.a: Invalid value: "integer": spec.a in body must be of type string: "integer"',
                'spec.a: Unsupported value: 5: supported values: "x", "y"',
            ],
        ),
        ({"a": None}, ["spec.a: Required value"]),
        ({"b": 9}, ["spec.b: Invalid value: 9: spec.b in body should be less than or equal to 5"]),
        ({"b": "s"}, ['spec.b: Invalid value: "string": spec.b in body must be of type integer: "string"']),
        ({"b": 1.5}, ['spec.b: Invalid value: "number": spec.b in body must be of type integer: "number"']),
        ({"b": 2.0}, []),
        (
            {"b": True},
            ['spec.b: Invalid value: "boolean": spec.b in body must be of type integer: "boolean"'],
        ),
        ({"l": ["a", "b", "c"]}, ["spec.l: Too many: 3: must have at most 2 items"]),
        ({"l": ["a", "a"]}, ['spec.l[1]: Duplicate value: "a"']),
        (
            {"l": ["a", 5]},
            ['spec.l[1]: Invalid value: "integer": spec.l[1] in body must be of type string: "integer"'],
        ),
        ({"l": {}}, ['spec.l: Invalid value: "object": spec.l in body must be of type array: "object"']),
        ({"p": "b"}, ["spec.p: Invalid value: \"b\": spec.p in body should match '^a+$'"]),
        ({"s": "a"}, ['spec.s: Invalid value: "a": spec.s in body should be at least 2 chars long']),
        ({"s": "abcde"}, ["spec.s: Too long: may not be more than 4 bytes"]),
        ({"s": "äöüß"}, []),
        ({"d": "2026-01-01T00:00:00Z"}, []),
        ({"d": "2026-01-01T00:00:00.123456789+02:00"}, []),
        ({"d": "no"}, ['spec.d: Invalid value: "no": spec.d in body must be of type date-time: "no"']),
        (
            {"d": "2026-13-01T00:00:00Z"},
            [
                'spec.d: Invalid value: "2026-13-01T00:00:00Z": spec.d in body must be of type date-time: '
                '"2026-13-01T00:00:00Z"'
            ],
        ),
        ({"d": 5}, ['spec.d: Invalid value: "int64": spec.d in body must be of type date-time: "int64"']),
        ({"m": [{"k": "a"}, {"k": "a"}]}, ['spec.m[1]: Duplicate value: {"k":"a"}']),
        ({"m": [{"k": "a"}, {"v": 1}]}, ["spec.m[1].k: Required value"]),
        (
            {"m": [5]},
            [
                'spec.m[0]: Invalid value: "integer": spec.m[0] in body must be of type object: "integer"',
                "spec.m[0]: Invalid value: 5: must be an object for an array of list-type map",
            ],
        ),
        ({"i": "a"}, []),
        ({"i": 5}, []),
        (
            {"i": True},
            ['spec.i: Invalid value: "boolean": spec.i in body must be of type integer,string: "boolean"'],
        ),
        (
            {"o": {"u": "1", "w": "2"}},
            [
                '<nil>: Invalid value: "": "spec.o" must validate one and only one schema (oneOf). '
                "Found 2 valid alternatives"
            ],
        ),
        (
            {"map": {"q": "s"}},
            ['spec.map.q: Invalid value: "string": spec.map.q in body must be of type integer: "string"'],
        ),
        ({"n": None}, []),
        ({"by": "!!"}, ['spec.by: Invalid value: "!!": spec.by in body must be of type byte: "!!"']),
        ({"by": "aGk="}, []),
        ({"num": 1}, ["spec.num: Invalid value: 1: spec.num in body should be greater than 1"]),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_kubernetes(spec: Any, expected: list[str]) -> None:
    full_spec = spec if spec == {} or not isinstance(spec, dict) or "a" in spec else {"a": "x", **spec}
    assert errors_of(full_spec) == expected


def test_a_one_of_that_nothing_matches_shows_the_nearest_branch() -> None:
    assert errors_of({"a": "x", "o": {}}) == [
        '<nil>: Invalid value: "": "spec.o" must validate one and only one schema (oneOf). Found none valid',
        "spec.o.u: Required value",
    ]


def test_the_reasons_are_those_of_kubernetes() -> None:
    obj = foo({"a": "z", "b": "s", "l": ["a", "a", "a"], "s": "abcde", "by": "!!"})
    assert {(error.field, error.reason) for error in SCHEMA.validate(obj)} == {
        ("spec.a", "FieldValueNotSupported"),
        ("spec.b", "FieldValueTypeInvalid"),
        ("spec.l", "FieldValueTooMany"),
        ("spec.l[1]", "FieldValueDuplicate"),
        ("spec.s", "FieldValueTooLong"),
        ("spec.by", "FieldValueTypeInvalid"),
    }


@pytest.mark.parametrize(
    ("spec", "unknown"),
    [
        ({"zzz": 1}, ["spec.zzz"]),
        ({"m": [{"k": "a"}, {"k": "b", "u": 1}]}, ["spec.m[1].u"]),
        ({"o": {"u": "1", "x": {"deep": 1}}}, ["spec.o.x"]),
        ({"any": {"free": {"as": 1}, "known": {"z": "a", "y": 1}}}, ["spec.any.known.y"]),
        ({"map": {"whatever": 1}}, []),
        ({"maps": {"one": {"z": "a", "y": 1}}}, ["spec.maps.one.y"]),
        (
            {"emb": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "q": "1", "r": 1}},
            ["spec.emb.r"],
        ),
    ],
)
def test_unknown_fields_are_dropped_and_told(spec: dict[str, Any], unknown: list[str]) -> None:
    obj = foo({"a": "x", **spec})
    assert SCHEMA.process(obj) == unknown
    assert SCHEMA.process(obj) == []


def test_an_unknown_field_at_the_top_is_dropped_and_metadata_is_left_alone() -> None:
    obj = {**foo({"a": "x"}), "extra": 1, "metadata": {"name": "f", "strange": 1}}
    assert SCHEMA.process(obj) == ["extra"]
    assert obj["metadata"] == {"name": "f", "strange": 1}


def test_defaults_are_filled_in_also_inside_lists() -> None:
    obj = foo({"a": "x", "m": [{"k": "a"}, {"k": "b", "v": 1}]})
    SCHEMA.process(obj)
    assert obj["spec"]["b"] == 3
    assert obj["spec"]["m"] == [{"k": "a", "v": 7}, {"k": "b", "v": 1}]


def test_a_default_is_never_shared_between_objects() -> None:
    one, two = foo({"a": "x"}), foo({"a": "x"})
    SCHEMA.process(one)
    SCHEMA.process(two)
    one["spec"]["dm"]["z"] = "changed"
    assert two["spec"]["dm"] == {"z": "made"}


def test_nulls_that_are_not_allowed_are_dropped_or_defaulted() -> None:
    obj = foo({"a": "x", "s": None, "b": None, "n": None, "map": {"q": None}})
    SCHEMA.process(obj)
    assert obj["spec"] == {"a": "x", "b": 3, "n": None, "map": {}, "dm": {"z": "made"}}


def test_unchecked_cel_rules_are_mentioned_beside_errors() -> None:
    rules = [{"rule": "true"}]
    schema = Schema(
        {"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": rules}
    )
    messages = [str(error) for error in schema.validate({"n": "x"})]
    assert messages[-1].startswith(
        "<nil>: Invalid value: null: some validation rules were not checked because"
    )
    assert schema.validate({"n": 1}) == []


def test_a_property_that_is_named_like_the_rules_keyword_is_no_rule() -> None:
    assert not Schema({"type": "object", "properties": {"a": {"type": "string"}}}).has_rules


def test_a_schema_that_says_nothing_keeps_only_the_frame() -> None:
    obj = {"apiVersion": "v1", "kind": "X", "metadata": {}, "spec": {}}
    assert Schema().process(obj) == ["spec"]


@pytest.mark.parametrize(
    ("rule", "good", "bad", "message"),
    [
        ({"multipleOf": 3}, 6, 7, "should be a multiple of 3"),
        ({"minimum": 3}, 3, 2, "should be greater than or equal to 3"),
        ({"maximum": 3, "exclusiveMaximum": True}, 2, 3, "should be less than 3"),
        ({"not": {"enum": [3]}}, 1, 3, "must not validate the schema (not)"),
        ({"anyOf": [{"enum": [1]}, {"enum": [2]}]}, 2, 3, "must validate at least one schema (anyOf)"),
        ({"allOf": [{"enum": [1]}, {"minimum": 0}]}, 1, 3, "must validate all the schemas (allOf)"),
    ],
)
def test_rules_for_numbers_and_combinations(rule: dict[str, Any], good: int, bad: int, message: str) -> None:
    schema = Schema({"type": "object", "properties": {"n": {"type": "number", **rule}}})
    assert any(message in str(error) for error in schema.validate({"n": bad}))
    assert schema.validate({"n": good}) == []


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


def test_a_format_that_is_not_known_is_ignored() -> None:
    schema = Schema({"type": "object", "properties": {"v": {"type": "string", "format": "int32"}}})
    assert schema.validate({"v": "anything"}) == []


def test_a_pattern_that_would_backtrack_for_ever_is_answered_at_once() -> None:
    schema = Schema({"type": "object", "properties": {"v": {"type": "string", "pattern": "^(a+)+$"}}})
    assert len(schema.validate({"v": "a" * 5000 + "!"})) == 1


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^[[:alnum:]]+$", "abc", "a:"),
        ("^[[:print:]]+$", "a b", "\n"),
        ("^[^[:space:]]+$", "a[", "a b"),
        ("^[[:^digit:]]+$", "ab", "1"),
        (r"^[\w-.]+$", "a-b.c", "a b"),
        (r"^[\d-x]+$", "1-x", "y"),
        (r"^[\s-\w]$", "-", "."),
        (r"^\Qa.b\E$", "a.b", "axb"),
        (r"^\101$", "A", "101"),
        ("^a{,3}$", "a{,3}", "aa"),
        (r"^\\C$", "\\C", "é"),
        ("^é.$", "éß", "é"),
        ("a$", "a", "a\n"),
    ],
)
def test_a_pattern_is_read_as_in_go(pattern: str, matching: str, other: str) -> None:
    schema = Schema({"type": "object", "properties": {"v": {"type": "string", "pattern": pattern}}})
    assert schema.validate({"v": matching}) == []
    assert [error.reason for error in schema.validate({"v": other})] == ["FieldValueInvalid"]


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
