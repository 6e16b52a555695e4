"""Quick looks at objects: what passes would have been left as it is, and found right, by the long way too."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.apiserver.schemas.check import compile_check
from certwright.kube.apiserver.schemas.quick import compile_fast_check
from certwright.kube.apiserver.schemas.structural import Schema
from certwright.kube.apiserver.schemas.walk import compile_walk
from certwright.resources.crds import custom_resource_definitions

TEXT = {"type": "string"}
CONDITIONS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "properties": {"type": TEXT, "at": {"type": "string", "format": "date-time"}},
    },
}

_TEXTS = st.sampled_from(
    ["", "a", "ab", "True", "YQ==", "YQ", "2026-02-28T10:00:00Z", "2026-02-30T10:00:00Z"]
)
_NAMES = st.sampled_from(["a", "b", "type", "x-y"])
_leaves = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "enum": st.sampled_from([["a", "ab"], ["True", 1], []]),
            "format": st.sampled_from(["date-time", "byte", "unheard-of", "ipv4"]),
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "pattern": st.just("^a"),
            "nullable": st.booleans(),
            "default": st.just("a"),
        },
    ),
    st.fixed_dictionaries({"type": st.sampled_from(["integer", "boolean", "number"])}),
    st.fixed_dictionaries({"type": st.just("integer"), "minimum": st.integers(0, 2)}),
    st.just({"x-kubernetes-int-or-string": True}),
)


def _deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "x-kubernetes-list-type": st.sampled_from(["atomic", "set", "map"]),
            "x-kubernetes-list-map-keys": st.sampled_from([["type"], ["a", "b"]]),
        },
    )
    objects = st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(_NAMES, inner, max_size=3),
            "required": st.lists(_NAMES, max_size=2),
            "additionalProperties": st.one_of(inner, st.booleans()),
            "x-kubernetes-preserve-unknown-fields": st.just(True),
            "minProperties": st.integers(0, 1),
            "default": st.just({}),
            "anyOf": st.just([{"required": ["a"]}, {"required": ["b"]}]),
        },
    )
    return st.one_of(lists, objects)


SCHEMAS = st.recursive(_leaves, _deeper, max_leaves=8)
_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.floats(0, 2), _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)),
    max_leaves=6,
)


def _like(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that nearly fit."""
    kind = schema.get("type")
    if kind == "object":
        members = {name: _like(prop) for name, prop in schema.get("properties", {}).items()}
        return st.fixed_dictionaries({}, optional=members)
    if kind == "array":
        return st.lists(_like(schema["items"]), max_size=3)
    exact = {"string": _TEXTS, "integer": st.integers(0, 3), "boolean": st.booleans()}
    return exact.get(str(kind), _ANY)


@given(st.data())
def test_what_passes_is_left_alone_and_found_right_by_the_long_way(data: st.DataObject) -> None:
    schema = {"type": "object", "properties": data.draw(st.dictionaries(_NAMES, SCHEMAS, max_size=3))}
    value = data.draw(st.one_of(_like(schema), _ANY))
    look = compile_fast_check(schema)
    if look is None or not look(value):
        return
    walked, unknown, errors = copy.deepcopy(value), list[str](), list[Any]()
    compile_walk(schema)(walked, None, unknown)
    check = compile_check(schema)
    assert check is not None
    check(value, None, errors)
    assert json.dumps(walked) == json.dumps(value)
    assert (unknown, errors) == ([], [])


@pytest.mark.parametrize(
    ("schema", "value", "passes"),
    [
        (TEXT, "a", True),
        (TEXT, None, False),
        ({"type": "string", "enum": ["a"]}, "b", False),
        ({"type": "array", "items": TEXT, "maxItems": 1}, ["a", "b"], False),
        ({"type": "object", "properties": {"a": TEXT}}, {"a": "x"}, True),
        ({"type": "object", "properties": {"a": TEXT}}, {"b": "x"}, False),
        ({"type": "object", "properties": {"a": TEXT}, "required": ["a"]}, {}, False),
        ({"type": "object", "properties": {"a": {**TEXT, "default": "x"}}}, {}, False),
        ({"type": "object", "properties": {"c": CONDITIONS}}, {"c": [{"type": "a"}, {"type": "b"}]}, True),
        ({"type": "object", "properties": {"c": CONDITIONS}}, {"c": [{"type": "a"}, {"type": "a"}]}, False),
        ({"type": "object", "properties": {"c": CONDITIONS}}, {"c": [{"type": "a", "at": "noon"}]}, False),
        ({"type": "object", "properties": {"a": TEXT, "p": {**TEXT, "pattern": "x"}}}, {"a": "x"}, True),
        ({"type": "object", "properties": {"a": TEXT, "p": {**TEXT, "pattern": "x"}}}, {"p": "x"}, False),
    ],
)
def test_a_quick_look_says_yes_or_sends_the_long_way(
    schema: dict[str, Any], value: Any, passes: bool
) -> None:
    look = compile_fast_check(schema)
    assert look is not None
    assert look(value) is passes


def test_the_usual_certificate_passes_with_its_status() -> None:
    schemas = {
        crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for crd in custom_resource_definitions()
    }
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T14:27:11Z"}
    look = compile_fast_check(schemas["Certificate"], root=True)
    assert look is not None
    assert look(
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": {"name": "a"},
            "spec": {"secretName": "a", "dnsNames": ["a.example.org"], "issuerRef": {"name": "ca"}},
            "status": {"conditions": [condition], "notAfter": "2027-02-19T14:27:09Z", "revision": 1},
        }
    )


def test_a_schema_whose_objects_are_all_fine_does_not_stay_dear() -> None:
    # Above the size from which on a schema that has yet to be compiled keeps others waiting.
    schema = Schema({"type": "object", "properties": {f"name-{n}": TEXT for n in range(500)}})
    assert schema.is_expensive
    for _ in range(50):
        # Found so by looks: nothing is ever judged the long way.
        schema.process({"name-1": "a"})
    assert not schema.is_expensive


def test_the_first_objects_may_be_looked_at_in_several_threads_at_once() -> None:
    """What msgspec has yet to learn of a type must not be left to them: it would end the process."""
    script = """
        import sys, threading
        from certwright.kube.apiserver.schemas.quick import compile_fast_check

        inner = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
        many = {"type": "array", "items": inner}
        schema = {"type": "object", "properties": {"one": inner, "many": many}}
        sys.setswitchinterval(1e-6)
        for _ in range(300):
            look = compile_fast_check(schema)
            work = lambda: look({"one": {"a": "x"}, "many": [{}]})
            threads = [threading.Thread(target=work) for _ in range(3)]
            [one.start() for one in threads], [one.join() for one in threads]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
