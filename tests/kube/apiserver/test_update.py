"""PUT and PATCH of stored objects."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from certwright.kube.store.sqlite.store import open_sqlite
from kube.apiserver.callers import (
    CERTIFICATES,
    CONFIG_MAPS,
    SECRETS,
    Api,
    Json,
    StartApi,
)


async def test_a_put_of_the_same_object_changes_nothing(api: Api) -> None:
    made = await api.certificate("web")
    before = api.store.revision
    shuffled = dict(reversed(made.items()))
    assert await api.ok("PUT", f"{CERTIFICATES}/web", shuffled) == made
    assert api.store.revision == before


async def test_core_kinds_may_be_replaced_without_a_revision(api: Api) -> None:
    await api.secret("a")
    put = await api.ok("PUT", f"{SECRETS}/a", {"metadata": {"name": "a"}, "stringData": {"x": "y"}})
    assert put["data"] == {"x": "eQ=="}


async def test_string_data_in_a_patch_is_folded_in(api: Api) -> None:
    await api.secret("a")
    patched = await api.merge(f"{SECRETS}/a", {"stringData": {"more": "x"}})
    assert patched["data"] == {"key": "YQ==", "more": "eA=="}


@pytest.mark.every_store
async def test_patches_without_revision_all_get_through(api: Api) -> None:
    await api.secret("a")
    patches = [api.merge(f"{SECRETS}/a", {"metadata": {"labels": {f"l{n}": "x"}}}) for n in range(20)]
    await asyncio.gather(*patches)
    assert len((await api.ok("GET", f"{SECRETS}/a"))["metadata"]["labels"]) == 20


async def test_updates_keep_the_time_of_creation(api: Api) -> None:
    made = await api.secret("a")
    api.clock.advance(timedelta(hours=1))
    patched = await api.merge(f"{SECRETS}/a", {"metadata": {"creationTimestamp": None, "labels": {"a": "b"}}})
    assert patched["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]


LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def test_a_put_creates_a_lease_that_is_not_there(api: Api) -> None:
    answer = await api.call("PUT", f"{LEASES}/a", {"metadata": {"name": "a", "resourceVersion": "5"}})
    assert (answer.status, answer.json["metadata"]["name"]) == (201, "a")
    assert answer.json["metadata"]["uid"]
    again = await api.call("PUT", f"{LEASES}/a", {**answer.json, "spec": {"holderIdentity": "x"}})
    assert again.status == 200
    dry = await api.call("PUT", f"{LEASES}/b?dryRun=All", {"metadata": {"name": "b"}})
    assert (dry.status, (await api.call("GET", f"{LEASES}/b")).status) == (201, 404)


async def test_a_put_that_names_a_uid_creates_nothing(api: Api) -> None:
    answer = await api.call("PUT", f"{LEASES}/a", {"metadata": {"name": "a", "uid": "x"}})
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.message.endswith("UID in precondition: x, UID in object meta: ")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_who_is_told_of_a_conflict_reads_what_it_was_with(
    start_api: StartApi, tmp_path: Path, method: str
) -> None:
    api = await start_api(store=await open_sqlite(tmp_path / "store.sqlite"))
    made = await api.config_map("a", {"n": "0"})
    revision = made["metadata"]["resourceVersion"]

    async def lose() -> Json:
        body: Json = made | {"data": {"n": "2"}}
        if method == "DELETE":
            body = {"preconditions": {"resourceVersion": revision}}
        refused = await api.call(method, f"{CONFIG_MAPS}/a", body)
        assert refused.status == 409
        return await api.ok("GET", f"{CONFIG_MAPS}/a")

    # The winner is still being committed when the loser is refused.
    won, read = await asyncio.gather(api.ok("PUT", f"{CONFIG_MAPS}/a", made | {"data": {"n": "1"}}), lose())
    assert read == won
