"""OpenAPI documents of custom resources, beside those that Kubernetes' own builder makes of the same.

`data/openapi.json.xz` holds definitions and their documents without descriptions, as `tests/go/openapi`
printed them (apiextensions-apiserver v0.35.0); what is shared by operations or by kinds stands where it is
used, or once.
"""

from __future__ import annotations

import asyncio
import copy
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.openapi.documents import OpenApi
from certwright.kube.util.clock import TestClock
from kube.apiserver.accepting import serve

Json = dict[str, Any]
_DATA = Path(__file__).parent / "data" / "openapi.json.xz"
# Where Kubernetes refers to a schema that says no more than this, ours says it.
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_IN_PLACE: Json = {
    f"{_META}Time": {"type": "string", "format": "date-time"},
    f"{_META}FieldsV1": {"type": "object"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
}


@cache
def vectors() -> Json:
    loaded: Json = msgspec.json.decode(lzma.decompress(_DATA.read_bytes()))
    return loaded


@cache
def documents() -> Json:
    """Ours: v2, and v3 of each group and version."""
    registry = make_registry(TestClock())
    for definition in copy.deepcopy(vectors()["definitions"]):
        serve(registry, definition)
    api = OpenApi(registry)
    paths = ("v2", "v3/apis/test.dev/v1", "v3/apis/test.dev/v1beta1")
    made = {}
    for path in paths:
        response = asyncio.run(api.respond(f"/openapi/{path}"))
        assert response is not None
        made[path] = plain(msgspec.json.decode(response.body))
    return made


def plain(value: Any, name: str = "") -> Any:
    """Without descriptions, Go's zero values as defaults, and the order of what has none."""
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return sorted(items, key=str) if name in ("parameters", "required") else items
    if not isinstance(value, dict):
        return value
    made = {key: plain(item, key) for key, item in value.items() if not _is_noise(key, item)}
    if len(made.get("allOf", ())) == 1:
        made |= made.pop("allOf")[0]
    return _IN_PLACE.get(str(made.get("$ref", "")).rpartition("/")[2], made)


def _is_noise(key: str, value: Any) -> bool:
    return (key == "description" and isinstance(value, str)) or (key == "default" and value in ("", {}, 0))


def schemas(document: Json) -> Json:
    definitions: Json = (
        document["definitions"] if "definitions" in document else document["components"]["schemas"]
    )
    return definitions


@pytest.mark.parametrize("name", sorted(vectors()["documents"]))
def test_a_document_says_what_that_of_kubernetes_says(name: str) -> None:
    group, version, _, form = name.split("/")
    theirs = plain(vectors()["documents"][name])
    ours = documents()["v2" if form == "v2" else f"v3/apis/{group}/{version}"]
    assert {path: ours["paths"].get(path) for path in theirs["paths"]} == theirs["paths"]
    assert {kind: schemas(ours).get(kind) for kind in schemas(theirs)} == schemas(theirs)


@pytest.mark.parametrize("form", ["v2", "v3/apis/test.dev/v1"])
def test_metadata_and_options_have_the_schemas_of_kubernetes(form: str) -> None:
    theirs = {name: plain(schema) for name, schema in vectors()["shared"][form[:2]].items()}
    ours = copy.deepcopy(schemas(documents()[form]))
    # Which groups know these options depends on the server.
    ours[f"{_META}DeleteOptions"].pop("x-kubernetes-group-version-kind")
    names = theirs.keys() - _IN_PLACE.keys()
    assert {name: ours.get(name) for name in names} == {name: theirs[name] for name in names}
