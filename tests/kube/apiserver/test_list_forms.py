"""Lists: how long ones are sent, and what Kubernetes answers where one might expect something else."""

from __future__ import annotations

import pytest

from certwright.kube.apiserver.model.backend import CHUNK
from kube.apiserver.callers import CERTIFICATES, CONFIG_MAPS, PARTIAL, SECRETS, TABLE, Api


@pytest.mark.parametrize("include", ["None", "Object"])
async def test_long_tables_are_streamed_whole(api: Api, include: str) -> None:
    names = [f"c{number:04}" for number in range(CHUNK + 7)]
    for name in names:
        await api.ok("POST", CONFIG_MAPS, {"metadata": {"name": name}})
    target = f"{CONFIG_MAPS}?includeObject={include}&fieldSelector=metadata.name!%3Dkube-root-ca.crt"
    assert (await api.raw("GET", target, accept=TABLE)).stream is not None
    table = (await api.call("GET", target, accept=TABLE)).json
    assert [row["cells"][0] for row in table["rows"]] == names
    assert table["columnDefinitions"][0]["name"] == "Name"
    assert table["metadata"] == {"resourceVersion": str(api.store.revision)}


async def test_an_empty_list_of_metadata(api: Api) -> None:
    accept = PARTIAL.replace("Metadata", "MetadataList", 1)
    listing = await api.ok("GET", f"{SECRETS}?labelSelector=nobody", accept=accept)
    assert (listing["kind"], listing["items"]) == ("PartialObjectMetadataList", None)
    full = await api.ok("GET", f"{SECRETS}?labelSelector=nobody")
    assert full["items"] == []


async def test_a_limit_does_not_count_for_a_list_of_any_revision(api: Api) -> None:
    for name in "abc":
        await api.secret(name)
    page = await api.ok("GET", f"{SECRETS}?limit=1&fieldSelector=type%3DOpaque")
    assert len(page["items"]) == 1
    every = await api.ok("GET", f"{SECRETS}?limit=1&resourceVersion=0&fieldSelector=type%3DOpaque")
    assert (len(every["items"]), "continue" in every["metadata"]) == (3, False)


@pytest.mark.parametrize("deeper", ["web/nothing", "web%2Fnothing", "web/a/b/c"])
async def test_a_custom_object_has_no_such_subresource(api: Api, deeper: str) -> None:
    await api.certificate("web")
    answer = await api.call("GET", f"{CERTIFICATES}/{deeper}")
    assert (answer.status, answer.message) == (404, 'certificates.cert-manager.io "web" not found')
    answer = await api.call("GET", f"{SECRETS}/{deeper}")
    assert (answer.status, answer.message) == (404, "the server could not find the requested resource")
