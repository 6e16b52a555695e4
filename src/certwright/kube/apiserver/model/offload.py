"""Offload of long CPU work: large objects are read, shaped and validated in a thread.

Python runs one thread at a time, but switches between them every few milliseconds, so that other requests
continue. A thread costs more than an ordinary request does: small ones stay on the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import ParamSpec, TypeVar

from certwright.kube.apiserver.base.users import flow_of
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.util.executor import Executor, Threads

LARGE = 64 * 1024
"""From this size in bytes on, work is done in a thread."""
_PER_FLOW = 1
"""Threads of one user. There is one thread more for all others; further ones would delay the loop."""

P = ParamSpec("P")
T = TypeVar("T")


@cache
def executor() -> Executor:
    """The threads of all servers of the process, in which users take turns."""
    return Threads(_PER_FLOW, name="large-requests")


def is_long(call: Call) -> bool:
    """Whether the work of a request may use the CPU for long: definitions, expensive schemas and patches that
    copy may, even with a small body."""
    body, row, schema = call.request.body, call.stored, call.definition.schema
    size = len(body) + (len(row.meta) + len(row.body) if row is not None else 0)
    if size > LARGE or call.definition.is_crd:
        return True
    return schema.is_expensive or (call.verb == "patch" and b'"copy"' in body)


async def run(call: Call | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work`, which may use neither the loop nor the store: done in a thread if it may take
    long.

    `call`: whose user waits for it. None: the server itself, whose work is always done in a thread.
    """
    if call is None or is_long(call):
        return await in_thread(call, work, *args, **kwargs)
    return work(*args, **kwargs)


async def in_thread(call: Call | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work`, done in a thread. A flow takes turns in each namespace of its own: a tenant, who
    may write to one, has one turn."""
    flow = (flow_of(call.user), call.route.namespace) if call is not None else ""
    return await executor().run(partial(work, *args, **kwargs), flow)
