"""The built-in kinds beside the discovery and OpenAPI documents that Kubernetes 1.33 publishes.

`data/kubernetes.json.xz` has the facts of these documents (see `tests/go/pack_openapi.py`): the resources of
each group and version, the methods of each path, the schema of each component without descriptions.
"""

from __future__ import annotations

import asyncio
import lzma
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.openapi.documents import OpenApi
from certwright.kube.apiserver.representations import discovery
from certwright.kube.util.clock import TestClock
from certwright.kube.util.http_messages import close_stream
from kube.apiserver.callers import Api, Json
from kube.apiserver.test_openapi import plain

_DATA = Path(__file__).parent / "data" / "kubernetes.json.xz"
_GVK = "x-kubernetes-group-version-kind"

REGISTRY = make_registry(TestClock())
VERSIONS = sorted({definition.api_version for definition in REGISTRY.all()})
NO_RESOURCE = b"the server could not find the requested resource"


@cache
def facts() -> Json:
    loaded: Json = msgspec.json.decode(lzma.decompress(_DATA.read_bytes()))
    return loaded


def root(version: str) -> str:
    return f"apis/{version}" if "/" in version else f"api/{version}"


def document(version: str) -> Json:
    response = asyncio.run(OpenApi(REGISTRY).respond(f"/openapi/v3/{root(version)}"))
    assert response is not None
    content: Json = msgspec.json.decode(response.body)
    return content


@pytest.mark.parametrize("version", VERSIONS)
def test_discovery_describes_resources_as_kubernetes_does(version: str) -> None:
    response = discovery.respond(REGISTRY, f"/{root(version)}", "application/json")
    assert response is not None
    theirs = {resource["name"]: resource for resource in facts()["resources"][version]}
    ours = {resource["name"]: resource for resource in msgspec.json.decode(response.body)["resources"]}
    assert ours == {name: theirs.get(name) for name in ours}


@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_say_what_those_of_kubernetes_say(version: str) -> None:
    theirs, differing = facts()["schemas"], {}
    for name, schema in document(version)["components"]["schemas"].items():
        if name not in theirs:
            continue  # newer than the release
        ours, expected = plain(schema), plain(theirs[name])
        ours.pop(_GVK, None)
        # Fields that the release does not have are shown, too.
        known = expected.get("properties", {})
        if known:
            ours["properties"] = {field: ours["properties"].get(field) for field in known}
        if ours != expected:
            differing[name] = (ours, expected)
    assert differing == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_documents_list_the_methods_that_kubernetes_has(version: str) -> None:
    theirs = facts()["methods"]
    ours = {path: sorted(item.keys() - {"parameters"}) for path, item in document(version)["paths"].items()}
    assert ours == {path: theirs.get(path) for path in ours}


def _paths() -> Iterator[tuple[str, str]]:
    """Paths of all served kinds, and some beside: as Kubernetes' documents have them, and to call."""
    for definition in REGISTRY.all():
        start = f"/{root(definition.api_version)}"
        parts = {"", "/status", "/scale", "/nothing", *(f"/{part.name}" for part in definition.subresources)}
        for namespace in ("", "/namespaces/{namespace}"):
            collection = f"{namespace}/{definition.plural}"
            for path in (collection, *(f"{collection}/{{name}}{part}" for part in parts)):
                for watch in ("", "/watch"):
                    template = f"{start}{watch}{path}"
                    yield template, template.format(namespace="default", name="missing")


async def test_each_path_has_exactly_the_methods_of_kubernetes(api: Api) -> None:
    """A method too many is as bad as one that lacks: DELETE of all Secrets of all namespaces was one."""
    differing = []
    for template, path in sorted(set(_paths())):
        methods = facts()["methods"].get(template)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            response = await api.raw(
                method, f"{path}?timeoutSeconds=1", b"{}", content_type="application/json"
            )
            await close_stream(response.stream)
            is_served = response.status != 405 and NO_RESOURCE not in response.body
            expected = "404" if methods is None else "served" if method.lower() in methods else "405"
            actual = "served" if is_served else str(response.status)
            if actual != expected:
                differing.append((method, template, actual, expected))
    assert "\n".join(map(str, differing)) == ""
