"""Objects as JSON, as the API server hands them out."""

from __future__ import annotations

import json
from typing import Any

from certwright.kube.util.http_messages import Request
from support.world import ADMIN, World

Json = dict[str, Any]
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
