"""The event loop of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to completion on the fastest available event loop (uvloop if installed)."""
    try:
        import uvloop  # not on Windows, and not before there is something to run: it takes 10 ms
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(_reporting(main))


async def _reporting(main: Coroutine[Any, Any, T]) -> T:
    asyncio.get_running_loop().set_exception_handler(report)
    return await main


def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no code handles, as the loop does by default, except for one of uvloop's own making.

    When `create_connection` is cancelled, uvloop (0.23) closes the socket without notifying its TLS layer. If
    the handshake completes in that moment, the TLS layer writes to the closed socket. Nothing is lost: the
    process ends while it connects, or a request has timed out.
    """
    error = context.get("exception")
    is_of_tls = context["message"] == "Fatal error on SSL protocol"
    if not (is_of_tls and isinstance(error, RuntimeError) and str(error).endswith("the handler is closed")):
        loop.default_exception_handler(context)
