"""Short words for what stores are told and asked in the tests of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from certwright.kube.store.contract import Changed, Encode, Event, Key, Page, Row, Store


class OpenStore(Protocol):
    """Opens a new, empty store. The window of recent events holds about `window_bytes`, None: enough."""

    def __call__(self, *, window_bytes: int | None = None) -> Coroutine[Any, Any, Store]:
        """The store; whoever asked for it closes it."""


BUCKET = "things"
A, B, C = (Key(BUCKET, "ns", name) for name in "abc")


def saying(text: str) -> Encode:
    """Encodes `text` as the body, and the revision as the meta."""
    return lambda revision: (b"%d" % revision, text.encode())


def said(rows: Sequence[Row]) -> list[str]:
    """What rows say, as `name=text`."""
    return [f"{row.key.name}={row.body.decode()}" for row in rows]


def row_saying(key: Key, revision: int, text: str) -> Row:
    """What `saying` leaves at a revision."""
    return Row(key, revision, b"%d" % revision, text.encode())


def holding(content: bytes) -> Encode:
    """Encodes `content` as the body, and its beginning as the meta."""
    return lambda revision: (content[:9_000], content)


async def all_pages(store: Store, *, limit: int, **arguments: Any) -> list[Page]:
    """Every page of a list of `BUCKET`, each of the first one's revision."""
    pages = [await store.list(BUCKET, limit=limit, **arguments)]
    while pages[-1].more:
        after, revision = pages[-1].last, pages[0].revision
        pages.append(await store.list(BUCKET, limit=limit, after=after, revision=revision, **arguments))
    return pages


async def fill(store: Store, count: int, *, namespace: str = "ns") -> list[Row]:
    """Write rows `000`, `001` … at the same time."""
    keys = [Key(BUCKET, namespace, f"{number:03}") for number in range(count)]
    return await asyncio.gather(*(store.put(key, saying("old"), expect=0) for key in keys))


async def count_up(store: Store, key: Key) -> None:
    """Read the number that the row says, and write the next; again, where somebody was faster."""
    while True:
        row = await store.latest(key)
        assert row is not None
        try:
            await store.put(key, saying(str(int(row.body) + 1)), expect=row.revision)
        except Changed:
            continue
        return


async def events_of(store: Store, *, after: int) -> list[Event]:
    """Every event of `BUCKET` after a revision so far, from a new watch."""
    watch = store.watch(BUCKET, after=after)
    events: list[Event] = []
    while watch.position < store.revision:
        batch = await watch.next(timeout_s=0.05)
        assert batch is not None, "the watch has ended"
        events += batch
    watch.close()
    return events
