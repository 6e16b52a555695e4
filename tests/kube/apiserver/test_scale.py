"""The scale subresource of custom resources; versions that are deprecated, and kinds that are going."""

from __future__ import annotations

from typing import Any

import pytest

from kube.apiserver.callers import CRDS, MERGE, Api

BASE = "/apis/example.com/v1/namespaces/default/foos"
Json = dict[str, Any]
FOO = {"apiVersion": "example.com/v1", "kind": "Foo"}


def foo_crd(**version: Any) -> Json:
    number = {"type": "integer"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"n": number}},
            "status": {"type": "object", "properties": {"n": number, "sel": {"type": "string"}}},
        },
    }
    paths = {
        "specReplicasPath": ".spec.n",
        "statusReplicasPath": ".status.n",
        "labelSelectorPath": ".status.sel",
    }
    return {
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, "scale": paths},
                    **version,
                }
            ],
        },
    }


@pytest.fixture
async def foos(api: Api) -> Api:
    await api.ok("POST", CRDS, foo_crd())
    await api.ok("POST", BASE, {**FOO, "metadata": {"name": "x"}, "spec": {"n": 1}})
    return api


@pytest.mark.parametrize("metadata", [{"name": "other"}, {"name": "x", "namespace": "other"}])
async def test_a_scale_is_of_the_object_on_the_path(foos: Api, metadata: Json) -> None:
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 5}}
    answer = await foos.call("PUT", f"{BASE}/x/scale", body)
    assert (answer.status, "does not match the name" in answer.message) == (400, True)


async def test_a_scale_of_another_revision_is_a_conflict(foos: Api) -> None:
    body = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 4}}
    assert (await foos.call("PATCH", f"{BASE}/x/scale", body, content_type=MERGE)).status == 409


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        ({"deprecated": True}, "example.com/v1 Foo is deprecated"),
        ({"deprecated": True, "deprecationWarning": "use bars"}, "use bars"),
    ],
)
async def test_a_deprecated_version_warns(api: Api, version: Json, warning: str) -> None:
    await api.ok("POST", CRDS, foo_crd(**version))
    answer = await api.call("GET", BASE)
    assert answer.headers["warning"] == f'299 - "{warning}"'


async def test_a_patch_that_takes_the_metadata_is_a_bad_request(foos: Api) -> None:
    """Also once the fast check of the kind exists, which takes some objects."""
    for _ in range(40):
        answer = await foos.call("PATCH", f"{BASE}/x", {"metadata": None}, content_type=MERGE)
        assert (answer.status, "name must be provided" in answer.message) == (400, True)
