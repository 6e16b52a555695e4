"""Connections that are closed to the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.waiting import turns, until


@asynccontextmanager
async def all_closed() -> AsyncIterator[None]:
    """At the end, wait until the loop watches no connection that was opened meanwhile, and closed.

    To close TLS takes an answer of the other side, for which aiohttp does not wait where a connection was
    given up in the middle of an answer. A loop that ends before leaves it to the garbage collector, which
    complains in the middle of another test. What is watched is private to asyncio, and known nowhere else.
    """
    before = _watched()
    try:
        yield
    finally:
        await until(lambda: _watched() <= before)
        await turns(3)


def _watched() -> set[int]:
    """The file descriptors that the loop reads or writes."""
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined] # see `all_closed`
    return set(selector.get_map())
