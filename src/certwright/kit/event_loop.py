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
    return uvloop.run(main)
