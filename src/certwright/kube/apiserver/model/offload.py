"""Offload of long CPU work: large objects are read, shaped and validated in a thread.

Python runs one thread at a time, but switches between them every few milliseconds, so that other requests
continue. A thread costs more than an ordinary request does: small ones stay on the loop.
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
"""From this size in bytes on, work is done in a thread."""
_THREADS = 2  # more would only wait for each other, and delay the loop

P = ParamSpec("P")
T = TypeVar("T")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="large-requests")


def is_long(call: Call, row: Row | None = None) -> bool:
    """Whether the work of a write may use the CPU for long.

    `row`: what it changes. Definitions, expensive schemas and patches that copy may take long even with a
    small body.
    """
    body, schema = call.request.body, call.definition.schema
    size = len(body) + (len(row.meta) + len(row.body) if row is not None else 0)
    if size > LARGE or call.definition.is_crd:
        return True
    return schema.is_expensive or (call.verb == "patch" and b'"copy"' in body)


async def run(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work`, done in a thread; it may use neither the loop nor the store."""
    return await asyncio.get_running_loop().run_in_executor(_pool(), partial(work, *args, **kwargs))
