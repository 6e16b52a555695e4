"""Changes while a page is open: Server-Sent Events with the blocks of the page that have changed.

A stream renders its page again when the index has changed, and sends the blocks that differ from what the
browser has. All streams together have a small share of the processor: single changes are shown at once, and
while much changes, pages are rendered less often. Source: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final, Protocol
from urllib.parse import parse_qsl

import msgspec

from certwright.dashboard.access import ProcessorShare
from certwright.dashboard.visit import View, Visit
from certwright.kube.api.errors import ApiError, NotFound, TooManyRequests, Unauthorized, Unreachable
from certwright.kube.util.clock import Clock
from certwright.kube.util.encoding import one_line
from certwright.kube.util.http_messages import ClosingStream, Response

CONTENT_TYPE: Final = "text/event-stream"
_GATHER_S: Final = 0.05
"""How long changes are gathered before the page is rendered."""
_AGAIN_S: Final = 1.0
_PATIENCE_S: Final = 1.0
"""The longest pause of a page, times the number of open pages: on a machine that has no time for it."""
_LONGEST_S: Final = 1800.0
"""After which the browser asks again, for a new cookie of its session, which is not idle."""
_CHECK_S: Final = 15.0
"""The longest time between two renderings, each of which checks the user's credential, too."""


class Renderer(Protocol):
    """Renders pages: the site. `share`: the processor time that all streams share."""

    clock: Clock
    share: ProcessorShare

    async def identify_again(self, visit: Visit) -> None:
        """Raises `ApiError` once the visit's session or credential has ended."""

    async def blocks(self, visit: Visit) -> tuple[View | Response, dict[str, str]]:
        """The content of the visit's page, and its live blocks. Raises `ApiError`."""


async def stream(site: Renderer, visit: Visit, ended: Callable[[], None]) -> Response:
    """The stream of the page that the query names by `at`: path and query below /ui/. `ended` is called once,
    at its end."""
    with ExitStack() as at_end:
        at_end.callback(ended)
        path, _, query = visit.query.get("at", "").partition("?")
        if path == "live":
            raise NotFound("there is no such page")
        visit = replace(visit, path=path, query=dict(parse_qsl(query, keep_blank_values=True)))
        changed = asyncio.Event()
        at_end.callback(visit.index.observe(changed.set))
        view, blocks = await site.blocks(visit)
        if not isinstance(view, View) or not view.live:
            raise NotFound("this page does not change")
        if view.details:
            at_end.callback(visit.index.observe_details(view.details, changed.set))
            changed.set()  # details may have changed before they were observed
        if "lines" in view.live:
            at_end.callback(visit.tools.log.observe(changed.set))
        kept = at_end.pop_all()
    headers = {"content-type": CONTENT_TYPE, "x-accel-buffering": "no"}
    chunks = _follow(site, visit, changed, blocks)
    return Response(200, headers, stream=ClosingStream(chunks, kept.close))


async def _follow(
    site: Renderer, visit: Visit, changed: asyncio.Event, blocks: dict[str, str]
) -> AsyncIterator[bytes]:
    known: dict[str, str] = {}
    end = site.clock.monotonic() + _LONGEST_S
    pause = 0.0
    yield b"retry: 3000\n\n"
    while site.clock.monotonic() < end:
        fresh = {name: html for name, html in blocks.items() if _differs(known, name, html)}
        yield b"data: " + msgspec.json.encode(fresh) + b"\n\n" if fresh else b": \n\n"
        await asyncio.sleep(max(_GATHER_S, min(pause, _PATIENCE_S * visit.index.observers)))
        with suppress(TimeoutError):
            async with asyncio.timeout(_CHECK_S):
                await changed.wait()
        changed.clear()
        begun = site.clock.monotonic()
        try:
            await site.identify_again(visit)
            visit.now = site.clock.now()
            _, blocks = await site.blocks(visit)
        except (TooManyRequests, Unreachable):
            await asyncio.sleep(_AGAIN_S)
            changed.set()
            continue
        except ApiError as error:
            why = "the session has ended" if isinstance(error, Unauthorized) else one_line(str(error))
            yield f"event: end\ndata: Not live: {why}.\n\n".encode()
            return
        now = site.clock.monotonic()
        pause = site.share.spend(now - begun, now)


def _differs(known: dict[str, str], name: str, html: str) -> bool:
    """Whether the block differs from the browser's block; the block is recorded as sent."""
    digest = hashlib.sha256(html.encode()).hexdigest()
    before, known[name] = known.get(name), digest
    return before != digest
