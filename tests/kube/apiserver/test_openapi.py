"""OpenAPI documents; those of custom resources beside those that Kubernetes' own builder makes of the same.

`data/openapi.json.xz` holds definitions and their documents without descriptions, as `tests/go/openapi`
printed them (apiextensions-apiserver v0.35.0); what is shared by operations or by kinds stands where it is
used, or once.
"""

from __future__ import annotations

import asyncio
import copy
import lzma
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.kinds.native import NativeSchema
from certwright.kube.apiserver.kinds.native_openapi import components
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.openapi import proto
from certwright.kube.apiserver.openapi.documents import OpenApi
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import Response
from kube.apiserver.accepting import serve
from kube.apiserver.callers import Json

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.fixture
def api(registry: Registry) -> OpenApi:
    return OpenApi(registry)


def answer(api: OpenApi, path: str, **more: str) -> Response:
    response = asyncio.run(api.respond(path, **more))
    assert response is not None
    return response


def document(api: OpenApi, path: str) -> Json:
    decoded: Json = msgspec.json.decode(answer(api, path).body)
    return decoded


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for item in node.values():
            yield from references(item)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def keywords(schemas: Iterable[Json]) -> Iterator[str]:
    for schema in schemas:
        yield from schema
        below = (
            *schema.get("properties", {}).values(),
            schema.get("items"),
            schema.get("additionalProperties"),
        )
        yield from keywords(item for item in below if isinstance(item, dict))


def test_the_index_names_each_group_and_version_with_a_hash(api: OpenApi, registry: Registry) -> None:
    paths = document(api, "/openapi/v3")["paths"]
    named = {f"apis/{d.group}/{d.version}" if d.group else "api/v1" for d in registry.all()}
    assert paths.keys() == named
    assert paths["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1?hash=")


def test_a_hash_changes_with_its_group_only(api: OpenApi, registry: Registry) -> None:
    before = document(api, "/openapi/v3")["paths"]
    registry.drop_crd("issuers.cert-manager.io")
    after = document(api, "/openapi/v3")["paths"]
    assert [name for name in before if before[name] != after[name]] == ["apis/cert-manager.io/v1"]


@pytest.mark.parametrize("path", ["api/v1", "apis/cert-manager.io/v1", "apis/apiextensions.k8s.io/v1"])
def test_a_document_holds_all_that_it_refers_to(api: OpenApi, path: str) -> None:
    content = document(api, f"/openapi/v3/{path}")
    schemas = {f"#/components/schemas/{name}" for name in content["components"]["schemas"]}
    assert set(references(content)) <= schemas


def test_strategic_patches_are_said_to_work_for_core_kinds(api: OpenApi) -> None:
    item = document(api, "/openapi/v3/api/v1")["paths"]["/api/v1/namespaces/{namespace}/secrets/{name}"]
    assert "application/strategic-merge-patch+json" in item["patch"]["requestBody"]["content"]


def test_every_field_of_our_kinds_and_the_built_in_kinds_is_explained(
    api: OpenApi, registry: Registry
) -> None:
    def unexplained(schema: Json, path: str) -> Iterator[str]:
        for name, prop in schema.get("properties", {}).items():
            if not prop.get("description"):
                yield f"{path}.{name}"
            yield from unexplained(prop, f"{path}.{name}")
            yield from unexplained(prop.get("items", {}), f"{path}.{name}[]")

    # What a workload is made of is left to Kubernetes' own documentation.
    workloads = ("Pod", "Node", "Deployment", "DaemonSet")
    schemas_of = {d.kind: d.schema for d in registry.all() if d.kind not in workloads}
    explained = {
        name
        for schema in schemas_of.values()
        if isinstance(schema, NativeSchema)
        for name, _ in components(schema.message, lambda _: {})
    }
    for path in document(api, "/openapi/v3")["paths"]:
        schemas = document(api, f"/openapi/v3/{path}")["components"]["schemas"]
        for name, schema in schemas.items():
            if name in explained or not name.startswith("io.k8s.api."):
                assert list(unexplained(schema, name)) == []


def test_the_second_version_holds_all_kinds_and_nothing_newer(api: OpenApi) -> None:
    content = document(api, "/openapi/v2")
    assert content["swagger"] == "2.0"
    assert {"io.cert-manager.v1.Issuer", "io.k8s.api.core.v1.Secret"} <= content["definitions"].keys()
    assert set(references(content)) <= {f"#/definitions/{name}" for name in content["definitions"]}
    assert set(keywords(content["definitions"].values())) & {"nullable", "oneOf", "anyOf"} == set()


def test_who_takes_only_protobuf_of_the_third_version_is_told_what_there_is(api: OpenApi) -> None:
    assert answer(api, "/openapi/v3/api/v1", accept=PROTOBUF).status == 406
    assert answer(api, "/openapi/v3", accept=PROTOBUF).headers["content-type"] == "application/json"
    both = answer(api, "/openapi/v2", accept=f"{PROTOBUF}, application/json")
    assert both.headers["content-type"] == "application/json"


Fields = dict[int, list[Any]]


def read_message(raw: bytes) -> Fields:
    """The fields of a protobuf message: numbers, and bytes for what has a length."""
    fields: Fields = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(raw):
        tag = varint()
        if tag & 7 == 0:
            fields.setdefault(tag >> 3, []).append(varint())
        else:
            length = varint() if tag & 7 == 2 else 8
            fields.setdefault(tag >> 3, []).append(raw[at : at + length])
            at += length
    assert at == len(raw)
    return fields


def named(pairs: list[bytes]) -> dict[str, Fields]:
    read = (read_message(pair) for pair in pairs)
    return {pair[1][0].decode(): read_message(pair[2][0]) for pair in read}


def test_kubectl_gets_the_second_version_in_protobuf(api: OpenApi) -> None:
    response = answer(api, "/openapi/v2", accept=PROTOBUF)
    assert response.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    content = read_message(response.body)
    assert content[1] == [b"2.0"]
    definitions = named(read_message(content[9][0])[1])
    assert definitions.keys() == document(api, "/openapi/v2")["definitions"].keys()
    secret = definitions["io.k8s.api.core.v1.Secret"]
    properties = named(read_message(secret[25][0])[1])
    assert read_message(properties["type"][22][0]) == {1: [b"string"]}
    assert properties["metadata"][1] == [b"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]
    kinds = named(secret[31])["x-kubernetes-group-version-kind"]
    assert msgspec.json.decode(kinds[2][0]) == [{"group": "", "version": "v1", "kind": "Secret"}]


def test_the_protobuf_form_holds_numbers_flags_and_lists() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {
                "type": "integer",
                "minimum": 1.5,
                "maxLength": 300,
                "enum": [1, "a"],
                "exclusiveMinimum": True,
            },
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "additionalProperties": True},
            "l": {"type": "array", "items": {"type": "string"}},
        },
    }
    content = read_message(proto.encode({"definitions": {"x": schema}}))
    made = named(read_message(content[9][0])[1])["x"]
    properties = named(read_message(made[25][0])[1])
    assert properties["n"][9] == [struct.pack("<d", 1.5)]
    assert (properties["n"][11], properties["n"][10]) == ([300], [1])
    assert [read_message(item)[2] for item in properties["n"][20]] == [[b"1"], [b'"a"']]
    assert read_message(properties["free"][21][0]) == {2: [1]}
    assert 22 in read_message(read_message(properties["m"][21][0])[1][0])
    assert 22 in read_message(read_message(properties["l"][23][0])[1][0])


@pytest.mark.parametrize(
    "path", ["/openapi", "/openapi/v3/api/v2", "/openapi/v3/apis/none/v1", "/openapi/v4"]
)
def test_other_paths_are_not_answered(api: OpenApi, path: str) -> None:
    assert asyncio.run(api.respond(path)) is None


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
