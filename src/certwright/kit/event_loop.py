"""The event loop that a process runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on the fastest event loop there is (uvloop where it is installed)."""
    try:
        import uvloop  # not on Windows, and not before there is something to run: it takes 10 ms
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
