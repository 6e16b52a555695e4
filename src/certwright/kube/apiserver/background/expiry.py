"""Event expiry: deletes Events that have not been written for a while.

Of each Event only the key is kept, in the minute in which the Event may be due. Then the row is read: an
Event that was written again moves to a later minute. So an Event costs about 100 bytes, without scans.

Source: Kubernetes documentation, kube-apiserver's `--event-ttl` (one hour).
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import msgspec

from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.store.contract import Changed, Key, Missing, Row, StoreError
from certwright.kube.util.decoders import json_decoder

_log = logging.getLogger(__name__)
BUCKET = "events"
DEFAULT_TTL = timedelta(hours=1)
_SLOT_S = 60
_TOGETHER = 64


class _Meta(msgspec.Struct, rename="camel"):
    creation_timestamp: str = ""


class _Series(msgspec.Struct, rename="camel"):
    last_observed_time: str | None = None


class _Times(msgspec.Struct, rename="camel"):
    last_timestamp: str | None = None
    series: _Series | None = None


_created = json_decoder(_Meta).decode
_times = json_decoder(_Times).decode


class EventExpiry:
    """Deletes Events that are older than `ttl`; zero: never."""

    observed_buckets = (BUCKET,)

    def __init__(self, backend: Backend, ttl: timedelta) -> None:
        self._backend = backend
        self._ttl_s = int(ttl.total_seconds())
        self._slots: dict[int, list[bytes]] = {}
        self._woken = asyncio.Event()
        self._working = False

    @property
    def idle(self) -> bool:
        """Whether no deletion is running."""
        return not self._working

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._slots.values())

    def wrote(self, _definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Record a new Event; a later write of it is noticed when it is due."""
        if previous is None and self._ttl_s:
            self._note(row.key, self._backend.clock.now().timestamp())

    def removed(self, _definition: ResourceDefinition, _row: Row) -> None:
        """Nothing to do: an Event that is missing when it is due is skipped."""

    def _note(self, key: Key, written: float) -> None:
        # A minute later than due, when the whole minute has passed.
        slot = int((written + self._ttl_s) // _SLOT_S) + 1
        keys = self._slots.get(slot)
        if keys is None:
            keys = self._slots[slot] = []
            self._woken.set()
        keys.append(f"{key.namespace}/{key.name}".encode())

    async def load(self) -> None:
        """Record all stored Events, once, when the server starts."""
        if not self._ttl_s:
            return
        async for rows in self._backend.pages(BUCKET, meta_only=True):
            for row in rows:
                self._note(row.key, _seconds(_created(row.meta).creation_timestamp))
            await asyncio.sleep(0)

    async def run(self) -> None:
        """Load, then delete due Events until cancelled."""
        await self.load()
        while True:
            self._woken.clear()
            if not self._slots:
                await self._woken.wait()
                continue
            due = min(self._slots)
            at = datetime.fromtimestamp(due * _SLOT_S, UTC)
            if self._backend.clock.now() < at:
                # Nothing can become due before the first minute, because later writes are due later.
                await self._backend.clock.sleep_until(at)
            self._working = True
            try:
                await self._expire(due)
            except StoreError:
                _log.warning("old events are deleted later", exc_info=True)
                await self._backend.clock.sleep(_SLOT_S)
            finally:
                self._working = False

    async def _expire(self, slot: int) -> None:
        """Delete the due Events of a minute, in batches, so that requests run in between."""
        while keys := self._slots[slot]:
            some = keys[-_TOGETHER:]
            del keys[-len(some) :]
            try:
                await asyncio.gather(*(self._examine(key) for key in some))
            except StoreError:
                keys += some
                raise
            await asyncio.sleep(0)
        del self._slots[slot]

    async def _examine(self, packed: bytes) -> None:
        namespace, _, name = packed.decode().partition("/")
        row = await self._backend.readable(Key(BUCKET, namespace, name))
        definition = self._backend.registry.find("", "v1", "events")
        if row is None or definition is None:
            return
        written = _last_written(row)
        if written + self._ttl_s > self._backend.clock.now().timestamp():
            self._note(row.key, written)
            return
        try:
            await self._backend.delete(definition, row, objects.tombstone(row))
        except Changed as error:
            self._note(row.key, _last_written(error.current))
        except Missing:
            pass


def _last_written(row: Row) -> float:
    """When the Event was created or, by its own fields, last seen; seconds since 1970."""
    times = _times(b"{" + row.body + b"}")
    last = times.series.last_observed_time if times.series is not None else None
    stamps = (_created(row.meta).creation_timestamp, times.last_timestamp, last)
    return max(_seconds(stamp) for stamp in stamps)


def _seconds(stamp: str | None) -> float:
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0
    except ValueError:
        return 0.0
