"""Our controllers on what cert-manager has left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from certwright.controllers.acme.options import AcmeOptions
from controllers.acme.fake_world import Shown
from support.world import World, make_world
from takeover.loading import store_of
from takeover.objects import Json


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
