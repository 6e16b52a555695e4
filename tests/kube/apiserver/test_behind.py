"""What goes on behind the answers: contents of namespaces, owners that wait, Events that grow old."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from certwright.kube.store.contract import Key
from certwright.kube.store.memory import MemoryStore
from kube.apiserver.callers import SECRETS, Api, StartApi

Json = dict[str, Any]
NAMESPACES = "/api/v1/namespaces"
DEFAULT = f"{NAMESPACES}/default"
CA = "kube-root-ca.crt"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
FOREGROUND = {"propagationPolicy": "Foreground"}


def owned_by(owner: Json, kind: str = "Secret", *, block: bool | None = None) -> list[Json]:
    meta = owner["metadata"]
    reference: Json = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return [reference if block is None else {**reference, "blockOwnerDeletion": block}]


# --- contents of namespaces -------------------------------------------------------------------------------


async def test_every_namespace_has_an_account_and_the_ca_to_trust(start_api: StartApi) -> None:
    api = await start_api(root_ca="PEM")
    await api.namespace("new")
    await api.settle()
    for namespace in ("default", "kube-system", "kube-public", "kube-node-lease", "new"):
        path = f"{NAMESPACES}/{namespace}"
        assert await api.exists(f"{path}/serviceaccounts/default")
        assert (await api.ok("GET", f"{path}/configmaps/{CA}"))["data"] == {"ca.crt": "PEM"}


async def test_contents_of_a_namespace_come_back(start_api: StartApi) -> None:
    api = await start_api(root_ca="PEM")
    await api.ok("DELETE", f"{DEFAULT}/serviceaccounts/default")
    await api.ok("DELETE", f"{DEFAULT}/configmaps/{CA}")
    await api.settle()
    assert await api.exists(f"{DEFAULT}/serviceaccounts/default")
    patch = {"data": {"ca.crt": "forged"}}
    await api.merge(f"{DEFAULT}/configmaps/{CA}", patch)
    await api.settle()
    assert (await api.ok("GET", f"{DEFAULT}/configmaps/{CA}"))["data"] == {"ca.crt": "PEM"}


async def test_a_namespace_that_goes_is_not_filled_again(start_api: StartApi) -> None:
    api = await start_api(root_ca="PEM")
    await api.namespace("a")
    await api.settle()
    await api.ok("DELETE", f"{NAMESPACES}/a")
    await api.settle()
    assert not await api.exists(f"{NAMESPACES}/a")
    assert not await api.exists(f"{NAMESPACES}/a/serviceaccounts/default")


async def test_a_namespace_that_cannot_go_says_why(api: Api) -> None:
    await api.namespace("a")
    await api.secret("held", "a", finalizers=["x.dev/own"])
    await api.call("DELETE", f"{NAMESPACES}/a")
    while "conditions" not in (status := (await api.ok("GET", f"{NAMESPACES}/a"))["status"]):  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    said = {condition["type"]: condition for condition in status["conditions"]}
    assert status["phase"] == "Terminating"
    assert said["NamespaceDeletionContentFailure"]["status"] == "False"
    assert said["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: secrets. has 1 resource instances"
    )
    assert said["NamespaceFinalizersRemaining"]["message"] == (
        "Some content in the namespace has finalizers remaining: x.dev/own in 1 resource instances"
    )
    refused = await api.call("POST", f"{NAMESPACES}/a/secrets", {"metadata": {"name": "late"}})
    assert (refused.status, refused.json["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    released = {"metadata": {"finalizers": None}}
    await api.merge(f"{NAMESPACES}/a/secrets/held", released)
    await api.settle()
    assert not await api.exists(f"{NAMESPACES}/a")


# --- owners -----------------------------------------------------------------------------------------------


async def test_a_foreground_deletion_waits_for_dependents_that_block(api: Api) -> None:
    owner = await api.secret("owner")
    await api.secret("held", ownerReferences=owned_by(owner, block=True), finalizers=["x.dev/own"])
    await api.secret("free", ownerReferences=owned_by(owner))
    answer = await api.ok("DELETE", f"{SECRETS}/owner", FOREGROUND)
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    await api.settle()
    assert await api.exists(f"{SECRETS}/owner")
    assert not await api.exists(f"{SECRETS}/free")
    assert "deletionTimestamp" in (await api.ok("GET", f"{SECRETS}/held"))["metadata"]
    released = {"metadata": {"finalizers": None}}
    await api.merge(f"{SECRETS}/held", released)
    await api.settle()
    assert not await api.exists(f"{SECRETS}/held")
    assert not await api.exists(f"{SECRETS}/owner")


async def test_a_foreground_deletion_reaches_dependents_of_dependents(api: Api) -> None:
    owner = await api.secret("owner")
    middle = await api.secret("middle", ownerReferences=owned_by(owner, block=True))
    await api.secret("leaf", ownerReferences=owned_by(middle, block=True))
    await api.ok("DELETE", f"{SECRETS}/owner?propagationPolicy=Foreground")
    await api.settle()
    assert [await api.exists(f"{SECRETS}/{name}") for name in ("owner", "middle", "leaf")] == [False] * 3


async def test_a_foreground_deletion_leaves_what_another_owner_keeps(api: Api) -> None:
    owner, other = await api.secret("owner"), await api.secret("other")
    both = owned_by(owner, block=True) + owned_by(other)
    await api.secret("shared", ownerReferences=both)
    await api.ok("DELETE", f"{SECRETS}/owner", FOREGROUND)
    await api.settle()
    assert not await api.exists(f"{SECRETS}/owner")
    kept = (await api.ok("GET", f"{SECRETS}/shared"))["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in kept] == ["other"]


async def test_orphans_are_nobodys_when_the_owner_is_gone(api: Api) -> None:
    owner = await api.secret("owner")
    await api.secret("orphan", ownerReferences=owned_by(owner))
    answer = await api.ok("DELETE", f"{SECRETS}/owner", {"propagationPolicy": "Orphan"})
    assert answer["metadata"]["finalizers"] == ["orphan"]
    await api.settle()
    assert not await api.exists(f"{SECRETS}/owner")
    assert "ownerReferences" not in (await api.ok("GET", f"{SECRETS}/orphan"))["metadata"]


async def test_owners_that_went_while_nobody_looked_are_missed_after_a_start(start_api: StartApi) -> None:
    store = MemoryStore()
    api = await start_api(store=store)
    gone, there = await api.secret("gone"), await api.secret("there")
    await api.secret("left", ownerReferences=owned_by(gone))
    await api.secret("both", ownerReferences=owned_by(gone) + owned_by(there))
    await api.secret("kept", ownerReferences=owned_by(there))
    await api.settle()
    await api.server.close()
    await store.delete(Key("secrets", "default", "gone"))
    again = await start_api(store=store)
    await again.settle()
    assert not await again.exists(f"{SECRETS}/left")
    both = (await again.ok("GET", f"{SECRETS}/both"))["metadata"]["ownerReferences"]
    assert [reference["name"] for reference in both] == ["there"]
    await again.ok("DELETE", f"{SECRETS}/there")
    await again.settle()
    assert not await again.exists(f"{SECRETS}/both")
    assert not await again.exists(f"{SECRETS}/kept")


async def test_deletions_before_garbage_is_collected_are_made_good_then(start_api: StartApi) -> None:
    store = MemoryStore()
    api = await start_api(store=store)
    background, foreground = await api.secret("background"), await api.secret("foreground")
    orphaned = await api.secret("orphaned")
    await api.secret("a", ownerReferences=owned_by(background))
    await api.secret("b", ownerReferences=owned_by(foreground, block=True), finalizers=["x.dev/own"])
    await api.secret("c", ownerReferences=owned_by(orphaned))
    await api.settle()
    await api.server.close()
    again = await start_api(store=store, collects_garbage=False)
    await again.ok("DELETE", f"{SECRETS}/background")
    await again.ok("DELETE", f"{SECRETS}/foreground", FOREGROUND)
    await again.ok("DELETE", f"{SECRETS}/orphaned", {"propagationPolicy": "Orphan"})
    await again.secret("d", ownerReferences=owned_by(background))
    assert await again.exists(f"{SECRETS}/a")
    again.server.collect_garbage()
    await again.settle()
    assert not await again.exists(f"{SECRETS}/a")
    assert not await again.exists(f"{SECRETS}/d")
    assert "deletionTimestamp" in (await again.ok("GET", f"{SECRETS}/b"))["metadata"]
    assert await again.exists(f"{SECRETS}/foreground")
    assert "ownerReferences" not in (await again.ok("GET", f"{SECRETS}/c"))["metadata"]


async def test_who_names_an_owner_that_is_gone_follows_though_others_are_held(api: Api) -> None:
    owner = await api.secret("owner")
    await api.secret("held", ownerReferences=owned_by(owner), finalizers=["x.dev/own"])
    await api.ok("DELETE", f"{SECRETS}/owner")
    await api.settle()
    await api.secret("late", ownerReferences=owned_by(owner))
    await api.settle()
    assert not await api.exists(f"{SECRETS}/late")
    assert await api.exists(f"{SECRETS}/held")


async def test_an_owner_in_another_namespace_is_none_and_told(api: Api) -> None:
    await api.namespace("a")
    owner = await api.secret("owner")
    await api.secret("near", ownerReferences=owned_by(owner))
    await api.secret("far", "a", ownerReferences=owned_by(owner))
    await api.settle()
    assert await api.exists(f"{SECRETS}/near")
    assert not await api.exists(f"{NAMESPACES}/a/secrets/far")
    [event] = (await api.ok("GET", f"{NAMESPACES}/a/events"))["items"]
    assert (event["reason"], event["type"]) == ("OwnerRefInvalidNamespace", "Warning")
    assert event["message"].endswith('does not exist in namespace "a"')


async def test_an_object_without_namespace_keeps_its_impossible_owner(api: Api) -> None:
    owner = await api.secret("owner")
    role = {"metadata": {"name": "r", "ownerReferences": owned_by(owner)}, "rules": []}
    await api.ok("POST", ROLES, role)
    await api.ok("DELETE", f"{SECRETS}/owner")
    await api.settle()
    assert await api.exists(f"{ROLES}/r")
    [event] = (await api.ok("GET", f"{DEFAULT}/events"))["items"]
    assert event["reason"] == "OwnerRefInvalidNamespace"


# --- Events -----------------------------------------------------------------------------------------------


async def event(api: Api, name: str, **fields: Any) -> Json:
    about = {"kind": "Secret", "name": "s", "namespace": "default"}
    body = {"metadata": {"name": name}, "involvedObject": about, **fields}
    return await api.ok("POST", f"{DEFAULT}/events", body)


async def names(api: Api) -> list[str]:
    await api.settle()
    return [item["metadata"]["name"] for item in (await api.ok("GET", f"{DEFAULT}/events"))["items"]]


async def test_an_event_goes_after_an_hour(api: Api) -> None:
    await event(api, "a")
    api.clock.advance(timedelta(minutes=30))
    await event(api, "b")
    api.clock.advance(timedelta(minutes=29))
    assert await names(api) == ["a", "b"]
    api.clock.advance(timedelta(minutes=2))
    assert await names(api) == ["b"]
    api.clock.advance(timedelta(minutes=31))
    assert await names(api) == []


async def test_an_event_that_is_seen_again_stays(api: Api) -> None:
    made = await event(api, "a")
    api.clock.advance(timedelta(minutes=50))
    made |= {"count": 2, "lastTimestamp": api.clock.now().isoformat()}
    await api.ok("PUT", f"{DEFAULT}/events/a", made)
    api.clock.advance(timedelta(minutes=12))
    assert await names(api) == ["a"]
    api.clock.advance(timedelta(minutes=50))
    assert await names(api) == []


async def test_stored_events_are_known_after_a_start(start_api: StartApi) -> None:
    first = await start_api()
    for index in range(200):
        await event(first, f"e{index}")
    second = await start_api(store=first.store, event_ttl=timedelta(minutes=5))
    second.clock.advance(timedelta(minutes=7))
    assert await names(second) == []


async def test_events_can_be_kept_for_ever(start_api: StartApi) -> None:
    api = await start_api(event_ttl=timedelta(0))
    await event(api, "a")
    api.clock.advance(timedelta(days=400))
    assert await names(api) == ["a"]
