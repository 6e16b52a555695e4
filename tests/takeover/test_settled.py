"""Started on a cluster where cert-manager has issued: nothing is issued again, nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from support.world import World, make_world
from takeover import fleet
from takeover.loading import store_of
from takeover.objects import Json


@asynccontextmanager
async def taken_over(objects: list[Json], **options: Any) -> AsyncIterator[World]:
    """Our controllers on a cluster with these objects."""
    async with make_world(store=await store_of(objects), **options) as world:
        await world.settle()
        yield world


def written(world: World) -> list[str]:
    """What our controllers have written, Events too."""
    return [
        f"{one.method} {one.path}"
        for one in (*world.recording.object_writes(), *world.recording.event_writes())
    ]


async def test_what_is_at_rest_is_left_alone() -> None:
    async with taken_over(fleet.settled()) as world:
        assert written(world) == []
        await world.advance(timedelta(hours=1))
        assert written(world) == []
