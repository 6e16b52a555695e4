"""The scale subresource of custom resources; versions that are deprecated, and kinds that are going."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kube.apiserver.callers import CRDS, JSON_PATCH, MERGE, Api

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


async def test_the_numbers_are_read_from_where_the_definition_says(foos: Api) -> None:
    await foos.merge(f"{BASE}/x/status", {"status": {"n": 2, "sel": "a=b"}})
    scale = await foos.ok("GET", f"{BASE}/x/scale")
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 2, "selector": "a=b"}
    assert set(scale["metadata"]) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}


async def test_a_scale_that_is_put_changes_the_object_and_its_generation(foos: Api) -> None:
    scale = await foos.ok("GET", f"{BASE}/x/scale")
    scale["spec"]["replicas"] = 7
    assert (await foos.ok("PUT", f"{BASE}/x/scale", scale))["spec"] == {"replicas": 7}
    foo = await foos.ok("GET", f"{BASE}/x")
    assert foo["spec"] == {"n": 7}
    assert foo["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (MERGE, {"spec": {"replicas": 4}}),
        (JSON_PATCH, [{"op": "replace", "path": "/spec/replicas", "value": 4}]),
    ],
)
async def test_a_scale_can_be_patched(foos: Api, media: str, body: Any) -> None:
    assert (await foos.ok("PATCH", f"{BASE}/x/scale", body, content_type=media))["spec"] == {"replicas": 4}


@pytest.mark.parametrize("metadata", [{"name": "other"}, {"name": "x", "namespace": "other"}])
async def test_a_scale_is_of_the_object_on_the_path(foos: Api, metadata: Json) -> None:
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 5}}
    answer = await foos.call("PUT", f"{BASE}/x/scale", body)
    assert (answer.status, "does not match the name" in answer.message) == (400, True)


async def test_a_scale_of_another_revision_is_a_conflict(foos: Api) -> None:
    body = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 4}}
    assert (await foos.call("PATCH", f"{BASE}/x/scale", body, content_type=MERGE)).status == 409


async def test_nothing_can_be_scaled_below_zero(foos: Api) -> None:
    body = {"spec": {"replicas": -1}}
    answer = await foos.call("PATCH", f"{BASE}/x/scale", body, content_type=MERGE)
    assert answer.status == 422
    assert answer.message == (
        'Foo.example.com "x" is invalid: .spec.n: Invalid value: -1: should be a non-negative integer'
    )
    assert (await foos.call("PATCH", f"{BASE}/x", {"spec": {"n": -1}}, content_type=MERGE)).status == 422


async def test_an_object_that_does_not_say_how_many_has_no_scale_to_read(foos: Api) -> None:
    await foos.ok("POST", BASE, {**FOO, "metadata": {"name": "y"}, "spec": {}})
    answer = await foos.call("GET", f"{BASE}/y/scale")
    assert (answer.status, answer.message) == (
        500,
        'Internal error occurred: the spec replicas field ".spec.n" does not exist',
    )


async def test_what_cannot_be_scaled(foos: Api) -> None:
    assert (await foos.call("DELETE", f"{BASE}/x/scale")).status == 405
    assert (await foos.call("GET", f"{BASE}/missing/scale")).status == 404
    assert (await foos.call("PATCH", f"{BASE}/x/scale", {}, content_type="text/plain")).status == 415
    assert (await foos.call("PUT", f"{BASE}/x/scale", {"kind": "Other"})).status == 400


async def test_scale_is_in_discovery(foos: Api) -> None:
    resources = (await foos.ok("GET", "/apis/example.com/v1"))["resources"]
    scale = next(resource for resource in resources if resource["name"] == "foos/scale")
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


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


async def until_reason(api: Api, reason: str) -> None:
    """Wait until the definition gives that reason for its deletion."""
    async with asyncio.timeout(60):
        while True:
            crd = await api.ok("GET", f"{CRDS}/foos.example.com")
            if crd["status"]["conditions"][-1]["reason"] == reason:
                return
            await asyncio.sleep(0)


async def test_a_definition_that_is_being_deleted_says_so_and_takes_nothing_new(foos: Api) -> None:
    patch = {"metadata": {"finalizers": ["example.com/wait"]}}
    await foos.merge(f"{BASE}/x", patch)
    marked = await foos.ok("DELETE", f"{CRDS}/foos.example.com")
    assert marked["status"]["conditions"][-1]["reason"] == "InstanceDeletionPending"
    await until_reason(foos, "InstanceDeletionInProgress")
    crd = await foos.ok("GET", f"{CRDS}/foos.example.com")
    condition = next(item for item in crd["status"]["conditions"] if item["type"] == "Terminating")
    assert (condition["status"], condition["reason"]) == ("True", "InstanceDeletionInProgress")
    answer = await foos.call("POST", BASE, {**FOO, "metadata": {"name": "z"}})
    assert answer.status == 403
    assert answer.message.endswith("create not allowed while custom resource definition is terminating")
    await foos.ok("DELETE", f"{BASE}/x")
    await foos.merge(f"{BASE}/x", {"metadata": {"finalizers": None}})
    await foos.settle()
    assert (await foos.call("GET", f"{CRDS}/foos.example.com")).status == 404


async def test_a_patch_that_takes_the_metadata_is_a_bad_request(foos: Api) -> None:
    """Also once the fast check of the kind exists, which takes some objects."""
    for _ in range(40):
        answer = await foos.call("PATCH", f"{BASE}/x", {"metadata": None}, content_type=MERGE)
        assert (answer.status, "name must be provided" in answer.message) == (400, True)
