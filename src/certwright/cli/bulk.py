"""Many requests at the same time, with results in order."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import click

from certwright.cli.errors import report
from certwright.kube.api import errors
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client

T = TypeVar("T")
R = TypeVar("R")

ONE_AT_A_TIME = 20
"""Up to that many objects are sent one after the other, in the order of their files."""
_AT_ONCE = 64
"""As many connections to the server: enough that its writes share a commit."""
_AHEAD = 8 * _AT_ONCE
"""How far work may run ahead of the first item that is not finished."""
_PROGRESS_EVERY = 100

# Others may need these to be accepted, or be refused because of them.
_ORDERED_KINDS = frozenset(
    (
        "APIService",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "LimitRange",
        "MutatingWebhookConfiguration",
        "Namespace",
        "ResourceQuota",
        "Role",
        "RoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    )
)


async def each_in_order(
    items: Sequence[T], work: Callable[[T], Awaitable[R]], *, alone: Callable[[T], bool]
) -> AsyncGenerator[tuple[T, R], None]:
    """Each item with the result of its work, in order. An item that is `alone` begins after all earlier items
    have ended, and ends before the next begins. The first exception of `work` ends the others."""
    room = asyncio.Semaphore(_AT_ONCE)
    running: deque[tuple[T, asyncio.Task[R]]] = deque()

    async def bounded(item: T) -> R:
        async with room:
            return await work(item)

    try:
        for item in items:
            is_alone = alone(item)
            while running and (is_alone or len(running) >= _AHEAD):
                yield running[0][0], await running[0][1]
                running.popleft()
            if is_alone:
                yield item, await work(item)
            else:
                running.append((item, asyncio.create_task(bounded(item))))
        while running:
            yield running[0][0], await running[0][1]
            running.popleft()
    finally:
        for _, task in running:
            task.cancel()
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)


class SendingOrder:
    """The order of sending: which objects are sent alone, because they are few, others depend on them, or
    their name is a duplicate."""

    def __init__(self, total: int) -> None:
        self._few = total <= ONE_AT_A_TIME
        self._seen: set[tuple[str, ...]] = set()

    def alone(self, content: Mapping[str, Any]) -> bool:
        """Whether the object waits for all others."""
        metadata = content.get("metadata")
        named = metadata if isinstance(metadata, Mapping) else {}
        kind = str(content.get("kind", ""))
        key = (kind, str(named.get("namespace", "")), str(named.get("name", "")))
        again = key in self._seen
        self._seen.add(key)
        return self._few or again or kind in _ORDERED_KINDS


class Tally:
    """Counts results; shows progress on a terminal, and a summary if there were many."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._counts: Counter[str] = Counter()
        # Where the results themselves go to the terminal, they are the progress.
        self._shows = total > ONE_AT_A_TIME and sys.stderr.isatty() and not sys.stdout.isatty()

    def add(self, result: str) -> None:
        """Count one result, e.g. `created`."""
        self._counts[result] += 1
        done = self._counts.total()
        if self._shows and (done % _PROGRESS_EVERY == 0 or done == self._total):
            click.echo(f"\r{done:,} of {self._total:,}", err=True, nl=done == self._total)

    def summarize(self) -> None:
        """Print the counts on standard error: `10,000 created, 2 failed`."""
        if self._total > ONE_AT_A_TIME:
            report(", ".join(f"{n:,} {result}" for result, n in self._counts.items()), err=True)


Json = dict[str, Any]


States = dict[tuple[str, str], Json | None]
"""Objects by namespace and name; None for one that does not exist."""


async def follow(client: Client, kind: Kind[Json], namespace: str, name: str = "") -> AsyncGenerator[States]:
    """Yield the states of the objects of a namespace (empty: of all), or of one object: first the present
    states, then the changed ones. Never ends.

    Raises `ApiError` and `Unreachable`. A caller that leaves early must close it (`contextlib.aclosing`).
    """
    fields = f"metadata.name={name}" if name else ""
    known: set[tuple[str, str]] = {(namespace, name)} if name else set()
    while True:
        listing = await client.list(kind, namespace, fields=fields)
        found: States = {_key(obj): obj for obj in listing.items}
        yield dict.fromkeys(known) | found
        known |= found.keys()
        revision = listing.resource_version
        try:
            while True:
                watch = client.watch(kind, namespace, resource_version=revision, fields=fields)
                async with aclosing(watch):
                    async for batch in watch:
                        changed: States = {}
                        for event in batch:
                            revision = event.resource_version
                            changed[_key(event.object)] = None if event.type == "DELETED" else event.object
                        known |= changed.keys()
                        yield changed
        except errors.Expired:
            continue


def _key(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
