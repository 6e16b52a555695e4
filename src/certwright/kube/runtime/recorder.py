"""Event recorder: Events on objects, for people to read in `kubectl describe`.

Events are written in the background and delay no caller: when the program is idle, or some seconds later at
the latest. A rate limit of the client admits work in progress before them. Each object's Events are written
in the order in which they were recorded; those of different objects concurrently.

Source: Kubernetes API reference, Event v1 core; client-go `tools/record`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import zlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from certwright.kube.api.core import EVENTS, Event, EventSource, TypedObjectReference
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import Object, ObjectMeta
from certwright.kube.api.naming import bounded_name
from certwright.kube.client.rest import Client
from certwright.kube.client.throttle import REQUEST_RANK
from certwright.kube.runtime.idle_priority import AT_MOST_S, IdleTurns
from certwright.kube.runtime.queue import STAGE
from certwright.kube.util.caches import Lru
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet

Type = Literal["Normal", "Warning"]

_log = logging.getLogger(__name__)

SAME_WITHIN = timedelta(minutes=10)
"""Equal events of one object within this time are one Event whose `count` grows, as in client-go."""

# events.k8s.io/v1 allows a note of 1 kB; the same limit is applied to core/v1.
_MESSAGE_BYTES = 1024
_NAME_BYTES = 253
# The backlog limit: more events take memory, and would be lost in the end.
_WAITING = 10_000
_REMEMBERED = 4096
# The number of concurrent writes.
_LANES = 32


class _What(NamedTuple):
    """The key by which events are equal."""

    kind: AnyKind
    namespace: str
    name: str
    uid: str
    type: Type
    reason: str
    message: str


@dataclass(slots=True)
class _Sighting:
    """One event to be written, at the latest at `due` (monotonic). `resource_version` is the object's."""

    what: _What
    resource_version: str
    when: datetime
    due: float


@dataclass(slots=True)
class _Written:
    """The Event object in the API for a `_What`."""

    name: str
    count: int
    when: datetime


class Recorder:
    """Writes Events as `component` in `idle` turns. `dropped` counts those that were lost because the backlog
    was full, or because the API refused them."""

    def __init__(
        self, client: Client, clock: Clock, component: str, *, idle: IdleTurns | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._component = component
        self._idle = idle or IdleTurns(clock)
        self._lanes: list[asyncio.Queue[_Sighting]] = [asyncio.Queue() for _ in range(_LANES)]
        self._waiting = 0
        self._is_hurried = False
        self._written: Lru[_What, _Written] = Lru(_REMEMBERED)
        self._tasks: TaskSet | None = None
        self.dropped = 0
        self._stamp = 0
        # Distinguishes names of this process from those of another in the same microsecond.
        self._offset = secrets.randbelow(1_000)

    def event(self, kind: AnyKind, obj: Object, type: Type, reason: str, message: str) -> None:
        """Record an event about `obj`: `reason` is one CamelCase word, `message` a sentence.

        Returns immediately; a message over 1,024 bytes is cut. Call it on the event loop.
        """
        if self._waiting >= _WAITING:
            self._drop(f"{_WAITING} events wait to be written")
            return
        meta = obj.metadata
        what = _What(kind, meta.namespace, meta.name, meta.uid, type, reason, _cut(message))
        # One object's events are always in the same lane, so that they stay in order.
        lane = zlib.crc32(f"{meta.uid}{meta.namespace}/{meta.name}".encode()) % _LANES
        self._waiting += 1
        due = self._clock.monotonic() + AT_MOST_S
        self._lanes[lane].put_nowait(_Sighting(what, meta.resource_version, self._clock.now(), due))
        if self._tasks is None:
            self._tasks = TaskSet()
            for number, queue in enumerate(self._lanes):
                self._tasks.start(self._write_all(queue), name=f"events {number}")

    async def flush(self) -> None:
        """Return when everything recorded so far was written or dropped; these writes do not wait for idle
        turns."""
        self._is_hurried = True
        self._idle.hurry()
        try:
            for lane in self._lanes:
                await lane.join()
        finally:
            self._is_hurried = False

    async def close(self) -> None:
        """Stop writing; the backlog is lost (`flush` first)."""
        if self._tasks is not None:
            await self._tasks.close()
            self._tasks = None

    async def _write_all(self, lane: asyncio.Queue[_Sighting]) -> None:
        # Not the rank of the work that has recorded the first event.
        REQUEST_RANK.set(STAGE)
        while True:
            sighting = await lane.get()
            try:
                if not self._is_hurried:
                    await self._idle.wait(at_most_s=sighting.due - self._clock.monotonic())
                await self._write(sighting)
            except Exception as error:
                # Also a malformed response: the next event is tried nevertheless.
                self._drop(str(error) or type(error).__name__)
            finally:
                self._waiting -= 1
                lane.task_done()

    def _drop(self, why: str) -> None:
        self.dropped += 1
        level = logging.WARNING if self.dropped & (self.dropped - 1) == 0 else logging.DEBUG
        _log.log(level, "an event could not be written (%d so far): %s", self.dropped, why)

    async def _write(self, sighting: _Sighting) -> None:
        before = self._written.get(sighting.what)
        if before is not None and sighting.when - before.when <= SAME_WITHIN:
            patch = {"count": before.count + 1, "lastTimestamp": sighting.when.replace(microsecond=0)}
            with suppress(NotFound):  # Events expire
                await self._client.patch(EVENTS, before.name, _namespace(sighting.what), patch)
                before.count += 1
                before.when = sighting.when
                return
        event = self._event(sighting)
        try:
            await self._client.create(EVENTS, event)
        except AlreadyExists:
            # Another process, or this one before a restart, has used this name.
            self._stamp += secrets.randbelow(1_000_000)
            event = self._event(sighting)
            await self._client.create(EVENTS, event)
        self._written.put(sighting.what, _Written(event.metadata.name, 1, sighting.when))

    def _event(self, sighting: _Sighting) -> Event:
        what, when = sighting.what, sighting.when.replace(microsecond=0)
        # Nanoseconds since 1970, never the same twice: lists are ordered by name, so events of one second are
        # shown in the order in which they happened (client-go names its events in the same way).
        stamp = int(sighting.when.timestamp() * 1_000_000) * 1_000 + self._offset
        self._stamp = max(stamp, self._stamp + 1)
        suffix = f"{self._stamp:016x}"
        name = f"{bounded_name(what.name, limit=_NAME_BYTES - 1 - len(suffix))}.{suffix}"
        return Event(
            metadata=ObjectMeta(name=name, namespace=_namespace(what)),
            involved_object=TypedObjectReference(
                api_version=what.kind.api_version,
                kind=what.kind.kind,
                namespace=what.namespace,
                name=what.name,
                uid=what.uid,
                resource_version=sighting.resource_version,
            ),
            reason=what.reason,
            message=what.message,
            source=EventSource(component=self._component),
            first_timestamp=when,
            last_timestamp=when,
            count=1,
            type=what.type,
            reporting_component=self._component,
        )


def _namespace(what: _What) -> str:
    # The event of a cluster-scoped object needs a namespace nevertheless; client-go uses this one.
    return what.namespace or "default"


def _cut(message: str) -> str:
    raw = message.encode()
    return (
        message if len(raw) <= _MESSAGE_BYTES else raw[: _MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
    )
