"""The dashboard in Chromium, on a server that issues, fails, renews and delivers while it is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dashboard.browser.looks import LOOKS, PAGES, visiting
from dashboard.browser.scene import Shop

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real("chromium")]


@pytest.mark.parametrize("look", LOOKS)
async def test_every_page_is_accessible_and_no_page_complains_or_is_wider_than_the_window(
    look: str, browser: Browser, shop: Shop
) -> None:
    faults = []
    async with visiting(browser, shop, look) as visitor:
        for name, path in PAGES.items():
            visitor.complaints.clear()
            visitor.requests.clear()
            status = await visitor.open(path)
            if status != (404 if name == "missing" else 200):
                faults.append(f"{name}: {status}")
            faults += [f"{name}: {one}" for one in await visitor.violations()]
            faults += [f"{name}: {one}" for one in visitor.complaints]
            if (overflow := await visitor.overflow()) > 0:
                faults.append(f"{name}: {overflow} pixels too wide")
    assert not faults, "\n".join(faults)
