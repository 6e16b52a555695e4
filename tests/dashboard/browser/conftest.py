"""One Chromium and one shop for all tests of a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from dashboard.browser import looks, scene

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium."""
    async with looks.launched() as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[scene.Shop]:
    """The shop of the scene."""
    async with scene.shop(tmp_path_factory.mktemp("shop")) as opened:
        yield opened
