"""Chromium, as those who look at the dashboard have it: pages, looks, and what it complains about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboard.browser.scene import Shop
from support.real import missing, require

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request

PAGES = {
    "overview": "",
    "attention": "?state=attention&sort=expiry",
    "certificate": "certificates/shop/web",
    "broken": "certificates/shop/checkout",
    "waiting": "certificates/office/intranet",
    "expired": "certificates/shop/outlet",
    "approval": "certificates/office/badges",
    "deny": "certificates/office/badges/deny",
    "denied": "certificates/office/visitors",
    "renew": "certificates/shop/web/renew",
    "issuers": "issuers",
    "root": "cas/lab/root",
    "elsewhere": "elsewhere",
    "stream": "stream",
    "missing": "certificates/shop/nothing",
    "login": "login",
}
"""By name, the path below /ui/."""
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
    "wide": {"viewport": {"width": 1600, "height": 1000}},
    "print": {"viewport": {"width": 1000, "height": 1400}},
}
"""By name, the settings of playwright's context; "print" also has the medium of that name."""
# Without them Chromium asks Google's hosts at its start and meanwhile.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A Chromium without a window. Where it, or what drives it, is not installed, see `missing`."""
    if find_spec("playwright") is None:
        missing("playwright is not installed here; run `make browser`")
    from playwright.async_api import async_playwright

    path = require("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


def axe() -> str:
    """The program of axe-core."""
    spec = find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        missing("axe-playwright-python is not installed here; run `make browser`")
    return Path(spec.origin).with_name("axe.min.js").read_text()


# Paper has no targets that are too small to hit.
_AXE = """async () => (await axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    rules: {"target-size": {enabled: !matchMedia("print").matches}}}))
    .violations.flatMap(({id, nodes}) => nodes.map(({html, any, all, none}) =>
        `${id}: ${html.slice(0, 200)} (${[...any, ...all, ...none].map(({message}) => message).join("; ")})`
    ))"""


@dataclass
class Visitor:
    """A browser profile that is logged in. `base` is the address of the dashboard; `complaints` is what the
    browser had to say, requests to other places included."""

    base: str
    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    async def open(self, path: str) -> int:
        """Open a page below /ui/; the HTTP status."""
        response = await self.page.goto(self.base + path)
        assert response is not None
        status: int = response.status
        return status

    async def violations(self) -> list[str]:
        """What axe finds in the page."""
        # Not by a script element, which the page's policy forbids.
        await self.page.evaluate(axe())
        return list(await self.page.evaluate(_AXE))

    async def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(await self.page.evaluate(script))

    def hear(self, page: Page) -> None:
        """Note down what the page complains about, and what it asks for."""

        def console(message: ConsoleMessage) -> None:
            # Chromium says so itself of each page that is not there, which the tests open on purpose.
            if (
                message.type in ("error", "warning")
                and "the server responded with a status" not in message.text
            ):
                self.complaints.append(message.text)

        def request(asked: Request) -> None:
            self.requests.append(asked)
            if not asked.url.startswith((self.base, "data:")):
                self.complaints.append(f"asks {asked.url}")

        page.on("console", console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", request)


@asynccontextmanager
async def visiting(
    browser: Browser, shop: Shop, look: str = "light", *, base: str = "", **settings: Any
) -> AsyncIterator[Visitor]:
    """The dashboard in that look, logged in by a one-time link; `settings` are further ones of the
    context."""
    # The server's certificate is from its own CA, which this profile does not know.
    default: dict[str, Any] = {"ignore_https_errors": True, "locale": "en-GB", "timezone_id": "UTC"}
    context = await browser.new_context(**default | LOOKS[look] | settings)
    try:
        page = await context.new_page()
        if look == "print":
            await page.emulate_media(media="print")
        visitor = Visitor(base or f"{shop.url}/ui/", context, page)
        visitor.hear(page)
        await page.goto(await shop.link(visitor.base))
        yield visitor
    finally:
        await context.close()
