"""Worlds to test controllers in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controllers.scene import Scene
from support.world import World, make_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world with controllers."""
    async with make_world() as made:
        yield made


@pytest.fixture
async def scene(world: World) -> Scene:
    """A world with a CA issuer, and short words."""
    made = Scene(world)
    await made.add_ca()
    return made
