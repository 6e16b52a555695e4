"""Our controllers on what cert-manager has left: a store with its objects as they are, because through the
API they would get new UIDs, times and owners; and the objects afterwards, as JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

from certwright.controllers.acme.options import AcmeOptions
from certwright.kube.apiserver.model.objects import columns
from certwright.kube.store.contract import Key
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.http_messages import Request
from controllers.acme.fake_world import Shown
from support.world import ADMIN, World, make_world
from takeover.objects import Json

GROUPS = {
    "clusterissuers": "/apis/cert-manager.io/v1",
    "issuers": "/apis/cert-manager.io/v1",
    "certificates": "/apis/cert-manager.io/v1",
    "certificaterequests": "/apis/cert-manager.io/v1",
    "orders": "/apis/acme.cert-manager.io/v1",
    "challenges": "/apis/acme.cert-manager.io/v1",
    "secrets": "/api/v1",
}


async def objects(world: World, plural: str) -> list[Json]:
    """All objects of that kind, in all namespaces."""
    answer = await world.server.handle(Request("GET", f"{GROUPS[plural]}/{plural}", user=ADMIN))
    assert answer.status == 200, answer.body
    listed: Json = json.loads(answer.body)
    kind = listed["kind"].removesuffix("List")
    return [{"apiVersion": listed["apiVersion"], "kind": kind, **item} for item in listed["items"]]


async def everything(world: World) -> list[Json]:
    return [obj for plural in GROUPS for obj in await objects(world, plural)]


_IRREGULAR = {"Ingress": "ingresses"}


async def store_of(objects: Iterable[Json]) -> MemoryStore:
    """A store that holds these objects, as if it had been restored from a backup."""
    store = MemoryStore()
    for manifest in objects:
        obj = deepcopy(manifest)
        group = obj["apiVersion"].rpartition("/")[0]
        plural = _IRREGULAR.get(obj["kind"], f"{obj['kind'].lower()}s")
        metadata = obj["metadata"]
        key = Key(f"{group}/{plural}" if group else plural, metadata.get("namespace", ""), metadata["name"])
        await store.put(key, columns(obj), expect=0)
    return store


@asynccontextmanager
async def taken_over(objects: list[Json], **options: Any) -> AsyncIterator[World]:
    """A world with these objects, and our controllers at work in it, which answer HTTP-01 challenges."""
    options.setdefault("acme", AcmeOptions(responder=Shown()))
    async with make_world(store=await store_of(objects), **options) as world:
        await world.settle()
        yield world


def written(world: World) -> list[str]:
    """What our controllers have written besides Events: method, kind and name."""
    return [
        f"{write.method} {write.path.partition('/namespaces/')[2]}"
        for write in world.recording.object_writes()
    ]


def created(world: World, plural: str) -> int:
    """How many objects of that kind our controllers have made."""
    creates = [write for write in world.recording.object_writes() if write.method == "POST"]
    return sum(create.path.endswith(f"/{plural}") for create in creates)
