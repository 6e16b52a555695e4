"""The scale subresource of custom resources, and deprecated versions. What else they do is compared with the
reference: `conformance/story_writes.py`, `story_owners.py`."""

from __future__ import annotations

import pytest

from kube.apiserver.callers import CRDS, THING, THINGS, Api, Json, thing_crd


@pytest.mark.parametrize("metadata", [{"name": "other"}, {"name": "x", "namespace": "other"}])
async def test_a_scale_is_of_the_object_on_the_path(api: Api, metadata: Json) -> None:
    crd = thing_crd()
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    crd["spec"]["versions"][0]["subresources"]["scale"] = paths
    await api.ok("POST", CRDS, crd)
    await api.ok("POST", THINGS, {**THING, "metadata": {"name": "x"}, "spec": {"size": 1}})
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 5}}
    answer = await api.call("PUT", f"{THINGS}/x/scale", body)
    assert (answer.status, "does not match the name" in answer.message) == (400, True)


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        ({"deprecated": True}, "test.dev/v1 Thing is deprecated"),
        ({"deprecated": True, "deprecationWarning": "use bars"}, "use bars"),
    ],
)
async def test_a_deprecated_version_warns(api: Api, version: Json, warning: str) -> None:
    crd = thing_crd()
    crd["spec"]["versions"][0] |= version
    await api.ok("POST", CRDS, crd)
    assert (await api.call("GET", THINGS)).headers["warning"] == f'299 - "{warning}"'
