"""The dashboard in Chromium, on a server that issues, fails, renews and delivers while it is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from dashboard.browser.looks import LOOKS, PAGES, visiting
from dashboard.browser.scene import Shop, is_ready
from support.programs import free_port, running
from support.real import require

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


_NGINX = """
    daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
    events {{ worker_connections 64; }}
    http {{
        access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
        fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
        server {{
            listen 127.0.0.1:{port} ssl;
            ssl_certificate {folder}/tls.pem; ssl_certificate_key {folder}/tls.pem;
            location /certs/ {{ proxy_pass {url}/ui/; }}
        }}
    }}
"""


async def test_a_reverse_proxy_may_show_the_pages_below_any_path(
    browser: Browser, shop: Shop, tmp_path: Path
) -> None:
    """nginx with nothing said but where the pages are."""
    port, config = free_port(), tmp_path / "nginx.conf"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "tls.pem")
    config.write_text(_NGINX.format(folder=tmp_path, port=port, url=shop.url))
    base = f"https://127.0.0.1:{port}/certs/"
    faults = []
    with running([require("nginx"), "-c", str(config)], tmp_path / "out", port):
        async with visiting(browser, shop, base=base) as visitor:
            page = visitor.page
            assert page.url == base
            for name, path in PAGES.items():
                visitor.complaints.clear()
                await visitor.open(path)
                # The prefix is the proxy's, and so is the login page's.
                links = await page.evaluate("[...document.links].map((one) => one.href)")
                faults += [f"{name}: {link}" for link in links if not link.startswith(base)]
                faults += [f"{name}: {one}" for one in visitor.complaints]
            await visitor.open("certificates/lab/builds")
            await page.get_by_text("Live.").wait_for()
            await page.get_by_role("link", name="Renew now").click()
            await page.get_by_role("button", name="Renew now").click()
            await page.wait_for_url(f"{base}certificates/lab/builds*")
            await shop.until(
                "Certificate",
                "lab",
                "builds",
                lambda found: is_ready(found) and found["status"].get("revision", 0) > 0,
            )
            await page.get_by_role("button", name="Log out").click()
            await page.wait_for_url(f"{base}login")
            await visitor.open("issuers")
            assert page.url.startswith(f"{base}login")
    assert not faults, "\n".join(faults)
