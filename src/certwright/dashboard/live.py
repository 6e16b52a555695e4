"""Changes while a page is open: Server-Sent Events with the blocks of the page that have changed.

A stream renders its page again when the index has changed, and sends the blocks that differ from what the
browser has. All streams together may use a small share of the processor: while much changes, they render less
often. Source: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final, Protocol
from urllib.parse import parse_qsl

import msgspec

from certwright.dashboard.visit import View, Visit
from certwright.kube.api.errors import ApiError, NotFound, TooManyRequests, Unauthorized
from certwright.kube.util.clock import Clock
from certwright.kube.util.encoding import one_line
from certwright.kube.util.http_messages import Response

CONTENT_TYPE: Final = "text/event-stream"
_SHARE: Final = 0.02
"""The share of a processor that all streams together may use for rendering."""
_GATHER_S: Final = 0.05
"""How long changes are gathered before the page is rendered."""
_AGAIN_S: Final = 1.0
_PATIENCE_S: Final = 1.0
"""The longest pause of a single page, on a machine that has no time for it; of many it grows."""
_LONGEST_S: Final = 1800.0
"""After which the browser asks again, for a new cookie of its session, which is not idle."""
_CHECK_S: Final = 15.0
"""The longest time between two renderings, each of which checks the user's credential, too."""


class Renderer(Protocol):
    """Renders pages: the site."""

    clock: Clock

    async def identify_again(self, visit: Visit) -> None:
        """Raises `ApiError` once the visit's session or credential has ended."""

    async def view(self, visit: Visit) -> View | Response:
        """What the page of the visit shows. Raises `ApiError`."""

    def blocks(self, visit: Visit, view: View) -> dict[str, str]:
        """The live blocks of the page."""


async def stream(site: Renderer, visit: Visit) -> Response:
    """The stream of the page that the query names by `at`: path and query below /ui/."""
    path, _, query = visit.query.get("at", "").partition("?")
    if path == "live":
        raise NotFound("there is no such page")
    visit = replace(visit, path=path, query=dict(parse_qsl(query, keep_blank_values=True)))
    view = await site.view(visit)
    if not isinstance(view, View) or not view.live:
        raise NotFound("this page does not change")
    headers = {"content-type": CONTENT_TYPE, "x-accel-buffering": "no"}
    return Response(200, headers, stream=_follow(site, visit, view))


async def _follow(site: Renderer, visit: Visit, first: View) -> AsyncIterator[bytes]:
    known: dict[str, str] = {}
    changed = asyncio.Event()
    forget = [visit.index.observe(changed.set)]
    if first.details:
        forget.append(visit.index.observe_details(first.details, changed.set))
    if "lines" in first.live:
        forget.append(visit.tools.log.observe(changed.set))
    end = site.clock.monotonic() + _LONGEST_S
    try:
        yield b"retry: 3000\n\n"
        while site.clock.monotonic() < end:
            changed.clear()
            begun = site.clock.monotonic()
            try:
                await site.identify_again(visit)
                visit.now = site.clock.now()
                view = await site.view(visit)
                assert isinstance(view, View)
                blocks = site.blocks(visit, view)
            except TooManyRequests:
                await asyncio.sleep(_AGAIN_S)
                changed.set()
                continue
            except ApiError as error:
                why = "the session has ended" if isinstance(error, Unauthorized) else one_line(str(error))
                yield f"event: end\ndata: Not live: {why}.\n\n".encode()
                return
            spent = (site.clock.monotonic() - begun) * bool(known)  # the first time loads the templates
            fresh = {name: html for name, html in blocks.items() if _differs(known, name, html)}
            yield b"data: " + msgspec.json.encode(fresh) + b"\n\n" if fresh else b": \n\n"
            pages = visit.index.observers
            await asyncio.sleep(max(_GATHER_S, min(spent * pages / _SHARE, _PATIENCE_S * (1 + pages / 4))))
            try:
                async with asyncio.timeout(_CHECK_S):
                    await changed.wait()
            except TimeoutError:
                pass
    finally:
        for each in forget:
            each()


def _differs(known: dict[str, str], name: str, html: str) -> bool:
    """Whether the browser has another block; it is remembered as sent."""
    digest = hashlib.sha256(html.encode()).hexdigest()
    before, known[name] = known.get(name), digest
    return before != digest
