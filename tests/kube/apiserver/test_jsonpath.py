"""The JSONPath of printer columns."""

from __future__ import annotations

from typing import Any

import pytest

from certwright.kube.util.jsonpath import MISSING, compile_path, simple_keys

OBJECT: dict[str, Any] = {
    "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "x", "plain": "y"}},
    "spec": {"n": 3, "none": None, "list": [10, 20, 30], "empty": []},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Issuing", "status": "False", "n": 5},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".metadata.name", "web"),
        (".spec.n", 3),
        (".spec.none", None),
        (".spec.missing", MISSING),
        (".spec.n.deeper", MISSING),
        (".spec.list[0]", 10),
        (".spec.list[-1]", 30),
        (".spec.list[3]", MISSING),
        (".spec.list[*]", 10),
        (".spec.empty[*]", MISSING),
        (".spec['n']", 3),
        (".metadata.labels.app\\.kubernetes\\.io/name", "x"),
        (".metadata.labels['app\\.kubernetes\\.io/name']", "x"),
        (".metadata.labels['app.kubernetes.io/name']", MISSING),
        (".spec.list[-1:]", 30),
        (".spec.list[1:3]", 20),
        (".spec.list[5,0]", MISSING),
        (".spec.list[1,0]", 20),
        ("..type", "Ready"),
        (".status.conditions[?(@.n)].type", "Ready"),
        (".status.conditions[?(2 < @.n)].type", "Issuing"),
        ('.status.conditions[?(@.type == "Ready")].status', "True"),
        ('.status.conditions[?(@.type=="Issuing")].status', "False"),
        (".status.conditions[?(@.type=='Issuing')].status", "False"),
        ('.status.conditions[?(@.type == "Denied")].status', MISSING),
        ('.status.conditions[?(@.type != "Ready")].type', "Issuing"),
        (".status.conditions[?(@.n > 2)].type", "Issuing"),
        (".status.conditions[?(@.n <= 2)].type", "Ready"),
        ('.status.conditions[?(@.n < "x")].type', MISSING),
        (".status.conditions[*].status", "True"),
        (".", MISSING),
    ],
)
def test_a_path_finds_its_first_value(path: str, value: Any) -> None:
    assert compile_path(path)(OBJECT) == value or (value is MISSING and compile_path(path)(OBJECT) is MISSING)


@pytest.mark.parametrize(
    "path", ["spec.n", "", ".spec[", ".spec[x]", '.a["b"]', ".a[(@.length-1)]", ".a[?(@.b", ".a....b", ".a]"]
)
def test_a_path_that_is_not_understood_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"must start|not understood"):
        compile_path(path)


def test_only_plain_names_make_a_selectable_field() -> None:
    assert simple_keys(".spec.issuerRef.name") == ("spec", "issuerRef", "name")
    for path in (".spec.list[0]", "spec", ""):
        with pytest.raises(ValueError, match="plain names"):
            simple_keys(path)
