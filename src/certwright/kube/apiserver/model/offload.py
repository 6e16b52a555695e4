"""Long work beside the event loop: what is large is read, shaped and judged in a thread.

Python runs one thread at a time, but changes between them every few milliseconds, so that the others'
requests go on meanwhile. A thread costs more than an ordinary request does: small ones stay on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import ParamSpec, TypeVar

from certwright.kube.apiserver.model.backend import Call
from certwright.kube.store.contract import Row

LARGE = 64 * 1024
"""From this size in bytes on, work is done beside the loop."""
_THREADS = 2  # more would only wait for each other, and keep the loop waiting longer

P = ParamSpec("P")
T = TypeVar("T")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="large-requests")


def is_long(call: Call, row: Row | None = None) -> bool:
    """Whether the work of a write may keep a processor busy for long.

    `row`: what it changes. Definitions, dear schemas and patches that copy may take long however small the
    body is.
    """
    body, schema = call.request.body, call.definition.schema
    size = len(body) + (len(row.meta) + len(row.body) if row is not None else 0)
    if size > LARGE or call.definition.is_crd:
        return True
    return schema.is_dear or (call.verb == "patch" and b'"copy"' in body)


async def run(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work`, done in a thread; it may touch neither the loop nor the store."""
    return await asyncio.get_running_loop().run_in_executor(_pool(), partial(work, *args, **kwargs))
