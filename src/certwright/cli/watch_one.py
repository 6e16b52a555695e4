"""Reflector for one object: list, watch, and list again after the watch has expired."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client

Json = dict[str, Any]


async def follow(
    client: Client, kind: Kind[Json], name: str, namespace: str
) -> AsyncGenerator[Json | None, None]:
    """Yield the object's state now and after every change; None while it does not exist. Never ends.

    Raises `ApiError` and `Unreachable`. The caller must close it when leaving early (`contextlib.aclosing`).
    """
    fields = f"metadata.name={name}"
    while True:
        listing = await client.list(kind, namespace, fields=fields)
        yield listing.items[0] if listing.items else None
        revision = listing.resource_version
        try:
            while True:
                watch = client.watch(kind, namespace, resource_version=revision, fields=fields)
                async with aclosing(watch):
                    async for batch in watch:
                        for event in batch:
                            revision = event.resource_version
                            yield None if event.type == "DELETED" else event.object
        except errors.Expired:
            continue
