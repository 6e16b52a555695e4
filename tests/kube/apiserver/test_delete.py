"""DELETE, finalizers, namespaces, owners."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from certwright.kube.apiserver.verbs import watch as watch_verb
from certwright.kube.store.contract import Encode, Key, Row
from certwright.kube.store.memory import MemoryStore
from certwright.kube.store.sqlite.store import open_sqlite
from kube.apiserver.callers import (
    CERTIFICATES,
    CRDS,
    SECRETS,
    THING,
    THINGS,
    Api,
    Json,
    StartApi,
    thing_crd,
)
from support.waiting import turns


def owned_by(*owners: Json, kind: str = "Certificate", group: str = "cert-manager.io/v1") -> list[Json]:
    return [
        {"apiVersion": group, "kind": kind, "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in owners
    ]


@pytest.mark.every_store
async def test_a_namespace_goes_with_all_that_is_in_it(api: Api) -> None:
    await api.namespace("team")
    await api.secret("a", namespace="team")
    path = "/apis/cert-manager.io/v1/namespaces/team/issuers"
    head = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer"}
    await api.ok("POST", path, {**head, "metadata": {"name": "i"}, "spec": {"selfSigned": {}}})
    marked = await api.ok("DELETE", "/api/v1/namespaces/team")
    assert marked["status"]["phase"] == "Terminating"
    refused = await api.call("POST", "/api/v1/namespaces/team/secrets", {"metadata": {"name": "b"}})
    assert refused.status == 403
    assert "because it is being terminated" in refused.message
    assert refused.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await api.settle()
    assert not await api.exists("/api/v1/namespaces/team")
    assert not await api.exists("/api/v1/namespaces/team/secrets/a")
    assert not await api.exists(f"{path}/i")
    await api.secret("other")
    await api.namespace("team")


async def test_a_restart_goes_on_with_a_namespace(start_api: StartApi) -> None:
    store = MemoryStore()
    api = await start_api(store=store)
    await api.namespace("team")
    await api.secret("a", namespace="team", finalizers=["test.dev/hold"])
    await api.ok("DELETE", "/api/v1/namespaces/team")
    await api.server.close()
    again = await start_api(store=store)
    release: Json = {"metadata": {"finalizers": []}}
    await again.merge("/api/v1/namespaces/team/secrets/a", release)
    await again.settle()
    assert not await again.exists("/api/v1/namespaces/team")


async def test_some_namespaces_stay(api: Api) -> None:
    for name in ("default", "kube-system", "kube-public"):
        answer = await api.call("DELETE", f"/api/v1/namespaces/{name}")
        assert answer.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


async def test_a_definition_goes_with_all_its_objects(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_verb, "_FINISH_DELAY_S", 0.0)
    await api.ok("POST", CRDS, thing_crd())
    for number in range(3):
        await api.ok("POST", THINGS, {**THING, "metadata": {"name": f"t{number}"}, "spec": {"size": 1}})
    watch = await api.watch(f"{THINGS}?resourceVersion={api.store.revision}")
    await api.ok("DELETE", f"{CRDS}/things.test.dev")
    await api.settle()
    await turns()  # the watch has been ended, and still tells what it was told
    assert (await api.call("GET", THINGS)).status == 404
    assert not await api.exists(f"{CRDS}/things.test.dev")
    assert [event["type"] for event in await watch.rest()] == ["DELETED"] * 3
    await api.ok("POST", CRDS, thing_crd())
    assert (await api.ok("GET", THINGS))["items"] == []


@pytest.mark.every_store
async def test_dependents_follow_their_owner(api: Api) -> None:
    owner = await api.certificate("web")
    for number in range(3):
        await api.secret(f"s{number}", ownerReferences=owned_by(owner))
    await api.secret("free")
    await api.settle()
    await api.ok("DELETE", f"{CERTIFICATES}/web")
    await api.settle()
    assert [s["metadata"]["name"] for s in (await api.ok("GET", SECRETS))["items"]] == ["free"]


@pytest.mark.every_store
async def test_an_owner_that_was_just_written_is_not_looked_up(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await api.certificate("web")
    await api.settle()
    looked_up = AsyncMock()
    monkeypatch.setattr(api.store, "latest", looked_up)
    await api.secret("s", ownerReferences=owned_by(owner))
    await api.settle()
    looked_up.assert_not_called()


@pytest.mark.every_store
async def test_a_dependent_of_two_owners_outlives_the_first(api: Api) -> None:
    one, other = await api.certificate("one"), await api.certificate("other")
    await api.secret("s", ownerReferences=owned_by(one, other))
    await api.ok("DELETE", f"{CERTIFICATES}/one")
    await api.settle()
    kept = await api.ok("GET", f"{SECRETS}/s")
    assert [o["name"] for o in kept["metadata"]["ownerReferences"]] == ["other"]
    await api.ok("DELETE", f"{CERTIFICATES}/other")
    await api.settle()
    assert not await api.exists(f"{SECRETS}/s")


async def test_references_to_missing_owners_are_removed_in_one_write(api: Api) -> None:
    """One by one, 20,000 of them in one object took the time of everybody for hours."""
    living = await api.certificate("one")
    missing: list[Json] = [{"metadata": {"name": f"x{number}", "uid": str(number)}} for number in range(50)]
    made = await api.secret("s", ownerReferences=owned_by(*missing[:25], living, *missing[25:]))
    await api.settle()
    kept = await api.ok("GET", f"{SECRETS}/s")
    assert [o["name"] for o in kept["metadata"]["ownerReferences"]] == ["one"]
    assert int(kept["metadata"]["resourceVersion"]) == int(made["metadata"]["resourceVersion"]) + 1


@pytest.mark.every_store
@pytest.mark.parametrize("namesake", [False, True], ids=["no namesake", "a living namesake"])
async def test_what_is_created_for_a_dead_owner_is_collected(api: Api, *, namesake: bool) -> None:
    owner = await api.certificate("web")
    await api.ok("DELETE", f"{CERTIFICATES}/web")
    if namesake:
        await api.certificate("web")
    await api.secret("late", ownerReferences=owned_by(owner))
    await api.settle()
    assert not await api.exists(f"{SECRETS}/late")


async def test_what_is_created_while_its_owner_is_deleted_is_collected(
    start_api: StartApi, tmp_path: Path
) -> None:
    api = await start_api(store=await open_sqlite(tmp_path / "store.db"))
    owners = [await api.certificate(f"web-{number}") for number in range(8)]
    await asyncio.gather(
        *(api.ok("DELETE", f"{CERTIFICATES}/web-{number}") for number in range(0, 8, 2)),
        *(api.secret(f"s-{number}", ownerReferences=owned_by(owner)) for number, owner in enumerate(owners)),
        *(api.ok("DELETE", f"{CERTIFICATES}/web-{number}") for number in range(1, 8, 2)),
    )
    async with asyncio.timeout(60):
        while (await api.ok("GET", SECRETS))["items"]:  # noqa: ASYNC110 - bounded by the timeout
            await asyncio.sleep(0.01)


async def test_an_owner_of_a_kind_nobody_serves_is_left_in_peace(api: Api) -> None:
    stranger: dict[str, Any] = {"metadata": {"name": "x", "uid": "1"}}
    await api.secret("s", ownerReferences=owned_by(stranger, kind="ReplicaSet", group="apps/v1"))
    await api.settle()
    assert await api.exists(f"{SECRETS}/s")


class SlowStore(MemoryStore):
    """Answers deletions only when the test lets it, as a disk that is busy would."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def delete(self, key: Key, encode: Encode | None = None, *, expect: int | None = None) -> Row:
        gone = await super().delete(key, encode, expect=expect)
        self.begun.set()
        await self.go.wait()
        return gone


async def test_a_deletion_whose_caller_went_away_is_seen_to_its_end(start_api: StartApi) -> None:
    store = SlowStore()
    api = await start_api(store=store)
    owner = await api.certificate("web")
    await api.secret("s", ownerReferences=owned_by(owner))
    await api.settle()
    deleting = asyncio.create_task(api.call("DELETE", f"{CERTIFICATES}/web"))
    await asyncio.wait_for(store.begun.wait(), 60)
    deleting.cancel()
    store.go.set()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    while await store.get(Key("secrets", "default", "s")) is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
