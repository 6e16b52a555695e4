"""The dashboard in use: live, by keyboard, without JavaScript, in other time zones, and in hostile hands."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import time
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from dashboard.browser.looks import LOOKS, PAGES, Visitor, visiting
from dashboard.browser.scene import Shop, certificate, is_ready, named

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real("chromium")]

_HEAVIEST = 60_000
"""Bytes of a page, with all that it loads, none of it compressed."""
_CHANGES = 20


async def test_a_change_is_visible_at_once(browser: Browser, shop: Shop) -> None:
    """Within 200 ms on a quiet machine; the bound is for a busy one."""
    took = []
    async with visiting(browser, shop) as visitor:
        await _live(visitor, "?q=intranet")
        for number in range(_CHANGES):
            name = f"change-{number}.shop.example"
            shown = asyncio.create_task(_shown(visitor.page, name))
            await asyncio.sleep(0.6)
            begun = time.monotonic()
            await shop.patch("Certificate", "office", "intranet", {"spec": {"dnsNames": [name]}})
            await shown
            took.append(time.monotonic() - begun)
    median, longest = statistics.median(took), max(took)
    print(f"\nvisible after {1000 * median:.0f} ms (median of {_CHANGES}), at most {1000 * longest:.0f} ms")
    assert median < 3


async def test_what_is_repaired_is_no_card_any_more_and_a_renewal_is_seen_while_it_happens(
    browser: Browser, shop: Shop
) -> None:
    await shop.write(
        named("Issuer", "lab", "repaired", {"ca": {"secretName": "missing-ca"}}),
        certificate("lab", "mended", "Issuer/repaired"),
    )
    async with visiting(browser, shop) as visitor:
        await _live(visitor, "")
        card = visitor.page.locator("#attention").get_by_text("Issuer lab/repaired")
        await card.wait_for()
        await shop.patch("Issuer", "lab", "repaired", {"spec": {"ca": {"secretName": "root-tls"}}})
        await card.wait_for(state="detached")
        await _live(visitor, "certificates/lab/mended")
        before = await shop.until("Certificate", "lab", "mended", is_ready)
        changed = {"spec": {"dnsNames": ["mended-again.shop.example"]}}
        await shop.patch("Certificate", "lab", "mended", changed)
        await visitor.page.locator("#content").get_by_text("mended-again.shop.example").first.wait_for()
        assert (await shop.get("Certificate", "lab", "mended"))["status"] != before["status"]
        assert not visitor.complaints


async def test_hidden_tabs_close_their_stream(browser: Browser, shop: Shop) -> None:
    async with visiting(browser, shop) as visitor:
        await _live(visitor, "")
        counts: list[int] = []

        def is_closed() -> bool:
            # The browser may open another connection meanwhile, for the icon.
            counts.append(_sockets(shop.process.pid))
            return counts[-1] < max(counts)

        is_closed()
        # No tab of a Chromium without windows is hidden.
        for state in ("hidden", "visible"):
            await visitor.page.evaluate(
                """(state) => {
                    Object.defineProperty(document, "visibilityState", {value: state, configurable: true});
                    document.dispatchEvent(new Event("visibilitychange"));
                }""",
                state,
            )
            if state == "hidden":
                await _until(is_closed)
                visitor.requests.clear()
                await asyncio.sleep(0.3)
                assert not visitor.requests
        await _until(lambda: any("/live?" in asked.url for asked in visitor.requests))


async def test_an_open_page_costs_little(browser: Browser, shop: Shop) -> None:
    """Bytes for its reader, and memory of the server."""
    async with visiting(browser, shop) as visitor:
        weights = {}
        for name, path in PAGES.items():
            visitor.requests.clear()
            await visitor.open(path)
            await visitor.page.wait_for_load_state("load")
            loaded = [asked for asked in visitor.requests if "/live?" not in asked.url]
            answers = [await asked.response() for asked in loaded]
            # Without a window, the icon is not asked for.
            weights[name] = sum([int(answer.headers["content-length"]) for answer in answers if answer])
        print(f"\nbytes: {weights}")
        assert max(weights.values()) <= _HEAVIEST, weights
    # A browser makes six connections to a server of HTTP/1.1, and hidden tabs close theirs: so each of
    # these pages is in a browser of its own.
    used = []
    async with AsyncExitStack() as stack:
        for _ in range(2):
            for _ in range(5):
                one = await stack.enter_async_context(visiting(browser, shop))
                await one.page.get_by_text("Live.").wait_for()
            used.append(_resident_mb(shop.process.pid))
    print(f"MB of the server with 5 and 10 open pages: {used}")
    assert used[1] - used[0] < 5 * 0.6


async def test_everything_can_be_done_by_keyboard(browser: Browser, shop: Shop) -> None:
    faults = []
    async with visiting(browser, shop) as visitor:
        page = visitor.page
        for name in ("overview", "certificate", "renew", "issuers", "root", "stream", "login"):
            await visitor.open(PAGES[name])
            expected = int(await page.evaluate(f"() => {_CONTROLS}.length"))
            reached = []
            for _ in range(expected):
                await page.keyboard.press("Tab")
                reached.append(await page.evaluate(f"() => {{ const all = {_CONTROLS}; {_FOCUSED} }}"))
            if [at for at, _, _ in reached] != list(range(expected)):
                faults.append(f"{name}: Tab reaches {reached}")
            faults += [f"{name}: no focus is seen at {what}" for _, is_seen, what in reached if not is_seen]
        assert not faults, "\n".join(faults)
        # To the certificate by its link, and by Enter to its renewal.
        before = await shop.get("Certificate", "lab", "sensors")
        await visitor.open("?q=sensors")
        await _press(page, "table a", "sensors")
        await page.wait_for_url("**/certificates/lab/sensors")
        await _press(page, "a.button", "Renew")
        await page.wait_for_url("**/renew")
        await _press(page, "main button", "Renew")
        await page.wait_for_url(re.compile("/certificates/lab/sensors([?#].*)?$"))
        await shop.until(
            "Certificate",
            "lab",
            "sensors",
            lambda found: (
                found["status"].get("revision") != before["status"].get("revision") and is_ready(found)
            ),
        )
        assert not visitor.complaints


async def test_without_javascript_everything_works_but_changes(browser: Browser, shop: Shop) -> None:
    async with visiting(browser, shop, java_script_enabled=False) as visitor:
        page = visitor.page
        assert not await page.get_by_text("Copy", exact=True).filter(visible=True).count()
        for words, heading in (
            ("Issuers and CAs", "issuers"),
            ("Elsewhere", "elsewhere"),
            ("Stream", "stream"),
        ):
            await page.get_by_role("link", name=words, exact=True).click()
            assert page.url.endswith(heading)
        await page.get_by_role("link", name="Overview", exact=True).click()
        await page.get_by_label("Namespace").select_option("payments")
        await page.get_by_role("button", name="Filter").click()
        assert "namespace=payments" in page.url
        await page.get_by_role("link", name="Life", exact=True).click()
        assert "namespace=payments" in page.url
        assert "sort=expiry" in page.url
        names = await page.locator("tbody th a").all_inner_texts()
        assert names
        assert all(name.startswith("payments/") for name in names)
        before = await shop.get("Certificate", "payments", "fraud")
        await page.get_by_role("link", name="payments/fraud", exact=True).last.click()
        await page.get_by_role("link", name="Renew now", exact=True).click()
        await page.get_by_role("button", name=re.compile("^Renew")).click()
        await shop.until(
            "Certificate",
            "payments",
            "fraud",
            lambda found: found["status"].get("revision") != before["status"].get("revision"),
        )
        await page.get_by_role("button", name="Log out").click()
        await visitor.open("")
        assert page.url.endswith("/login")
        assert not visitor.complaints


async def test_times_are_in_the_zone_of_the_reader_with_utc_beside(browser: Browser, shop: Shop) -> None:
    async with visiting(browser, shop, timezone_id="America/New_York") as visitor:
        for path in (PAGES["certificate"], "", "stream"):
            await visitor.open(path)
            times = await visitor.page.evaluate(
                "() => [...document.querySelectorAll('time')].map((one) => [one.dateTime, one.title, "
                "one.textContent])"
            )
            assert times
            for machine, title, text in times:
                moment = datetime.fromisoformat(machine)
                assert "UTC" in title
                assert f"{moment:%Y-%m-%d %H:%M}" in title
                assert f"{moment.astimezone(ZoneInfo('America/New_York')):%H:%M}" in text


_FIELD = "'\"><img src=x onerror=harm()><script>harm()</script>{{7*7}}"
_SHORT = '"><img src=x onerror=harm()>'
_LONG = "W" * 2_000
_UNHARMED = """() => [...document.querySelectorAll("img, script, iframe, object, style, [onerror], [onload]")]
    .map((one) => one.outerHTML)
    .filter((html) => !/^<script src="[./]*static.app[.][0-9a-f]+[.]js" defer="">/.test(html))"""


async def test_script_in_any_field_of_a_tenant_is_text_and_breaks_no_layout(
    browser: Browser, shop: Shop
) -> None:
    await harass(shop)
    faults = []
    try:
        for look in LOOKS:
            async with visiting(browser, shop, look) as visitor:
                await visitor.context.expose_function("harm", lambda: visitor.complaints.append("harm"))
                for name, path in hostile_pages().items():
                    visitor.complaints.clear()
                    await visitor.open(path)
                    where = f"{name}, {look}"
                    faults += [f"{where}: {each[:200]}" for each in await visitor.page.evaluate(_UNHARMED)]
                    faults += [f"{where}: {each[:200]}" for each in visitor.complaints]
                    if (overflow := await visitor.overflow()) > 0:
                        faults.append(f"{where}: {overflow} pixels too wide")
    finally:
        await shop.client.raw("DELETE", "/api/v1/namespaces/hostile")
    assert not faults, "\n".join(faults)


async def harass(shop: Shop) -> None:
    """Fill what a tenant may write with script, and with what is too long."""
    spec: dict[str, Any] = {
        "commonName": _SHORT,
        "subject": {
            field: [_SHORT, _FIELD]
            for field in (
                "organizations",
                "organizationalUnits",
                "countries",
                "localities",
                "provinces",
                "streetAddresses",
                "postalCodes",
            )
        }
        | {"serialNumber": _SHORT},
        "uris": ["https://shop.example/'><img/src=x/onerror=harm()>"],
        "secretTemplate": {"annotations": {"note": _FIELD}},
    }
    hostile = certificate("hostile", "w" * 63, "Issuer/" + "i" * 63, **spec)
    hostile["metadata"]["annotations"] = {"note": _FIELD, "long": _LONG}
    solvers = [{"http01": {"ingress": {"ingressClassName": "n"}}}]
    server = {"server": "https://127.0.0.1:1/" + "d" * 200, "privateKeySecretRef": {"name": "a"}}
    issuer = {"acme": server | {"email": _FIELD, "solvers": solvers}}
    delivery = {"certificateRef": {"name": "w" * 63}, "root": "nothing", "path": "p" * 200}
    await shop.write(
        named("Namespace", "", "hostile"),
        named("Issuer", "hostile", "i" * 63, {"selfSigned": {}}),
        named("Issuer", "hostile", "mail", issuer),
        named("Issuer", "hostile", "said", {"ca": {"secretName": "s" * 250}}),
        hostile,
        certificate("hostile", "said", "Issuer/said"),
        named("Delivery", "hostile", "d", delivery),
        _event("hostile", "e", "said", _FIELD + _LONG),
        _event("hostile", "f", "w" * 63, _LONG + _FIELD),
    )
    # Whoever may write a status says what they like in it.
    condition = {"type": "Ready", "status": "False", "reason": "Said", "message": _FIELD + _LONG}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    for kind, name in (("Certificate", "said"), ("Issuer", "said")):
        await shop.patch(kind, "hostile", name, {"status": {"conditions": [condition]}}, "/status")


def hostile_pages() -> dict[str, str]:
    """The pages that show it, or are asked for it."""
    return {
        **{name: PAGES[name] for name in ("overview", "issuers", "elsewhere", "stream")},
        "mine": f"certificates/hostile/{'w' * 63}",
        "said": "certificates/hostile/said",
        "renew": "certificates/hostile/said/renew",
        "root": f"cas/hostile/{'w' * 63}",
        "search": f"?q={_FIELD.replace('{', '%7B')}&sort={_SHORT}&namespace={_SHORT}&state={_SHORT}",
        "stream of": f"stream?namespace={_SHORT}&name={_SHORT}",
        "none": f"certificates/{_SHORT}/{_SHORT}",
    }


def _event(namespace: str, name: str, about: str, message: str) -> dict[str, Any]:
    regarding = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "name": about}
    now = f"{datetime.now(ZoneInfo('UTC')):%Y-%m-%dT%H:%M:%SZ}"
    return named(
        "Event",
        namespace,
        name,
        involvedObject=regarding | {"namespace": namespace},
        type="Warning",
        reason=_SHORT,
        message=message[:1000],
        source={"component": _SHORT},
        firstTimestamp=now,
        lastTimestamp=now,
        count=3,
    )


async def test_no_other_site_can_frame_the_pages(browser: Browser, shop: Shop, tmp_path: Path) -> None:
    async with visiting(browser, shop) as visitor:
        outside = tmp_path / "frame.html"
        outside.write_text(f'<iframe src="{visitor.base}"></iframe>')
        page = await visitor.context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        await page.goto(outside.as_uri())
        await _until(lambda: any("frame-ancestors" in text or "X-Frame-Options" in text for text in said))
        for frame in page.frames[1:]:
            assert "certwright" not in await frame.content()


# What Tab reaches, in the order of the page; `details` that are closed hide theirs.
_CONTROLS = """[...document.querySelectorAll(
        "a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter((one) => one.type !== "hidden" && one.checkVisibility({checkVisibilityCSS: true})
        && !(one.closest("details:not([open])") && one.tagName !== "SUMMARY"))"""
_FOCUSED = """
    const one = document.activeElement, style = getComputedStyle(one);
    const isSeen = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2)
        || (one.matches("svg a")
            && [...one.children].every((part) => getComputedStyle(part).opacity === "1"));
    return [all.indexOf(one), Boolean(isSeen), one.outerHTML.slice(0, 120)];"""


async def _press(page: Page, selector: str, words: str) -> None:
    """Go on by Tab until a control with these words has the focus, and press Enter."""
    for _ in range(300):
        await page.keyboard.press("Tab")
        script = """([selector, words], one = document.activeElement) =>
            one.matches(selector) && one.textContent.includes(words)"""
        if await page.evaluate(script, [selector, words]):
            await page.keyboard.press("Enter")
            return
    pytest.fail(f"Tab does not reach {words}")


def _resident_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000


def _sockets(process: int) -> int:
    return sum("socket:" in os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir())


async def _live(visitor: Visitor, path: str) -> None:
    """Open the page, and wait until it follows."""
    await visitor.open(path)
    await visitor.page.get_by_text("Live.").wait_for()


async def _shown(page: Page, text: str) -> None:
    """Return when the page has shown that text."""
    script = """(text) => new Promise((done) => {
        const look = () => {
            if (!document.body.textContent.includes(text)) return false;
            requestAnimationFrame(done);
            return true;
        };
        if (!look()) new MutationObserver((_, watch) => look() && watch.disconnect())
            .observe(document.body, {childList: true, subtree: true, characterData: true});
    })"""
    await page.evaluate(script, text)


async def _until(holds: Any) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
