"""Watch events: one JSON object with a type and an object on each line.

Source: Kubernetes API concepts, "Efficient detection of changes"; API reference, WatchEvent v1 meta.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from certwright.kube.api import errors
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.decoders import json_decoder

T = TypeVar("T")

DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """One change: `type` is ADDED, MODIFIED or DELETED; for a deletion `object` is its last state."""

    type: str
    object: T
    resource_version: str


class Identified(msgspec.Struct):
    """The identity of an object and its revision, from its metadata."""

    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")

    @property
    def key(self) -> ObjectKey:
        """The object's key."""
        return ObjectKey(self.namespace, self.name)


class _ObjectIdentity(msgspec.Struct):
    metadata: Identified = msgspec.field(default_factory=Identified)


class _FullEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _EventIdentity(msgspec.Struct):
    type: str
    object: _ObjectIdentity


class RawEvent(msgspec.Struct, frozen=True):
    """A line whose object has not been decoded: its form depends on `type` (for BOOKMARK an object with
    nothing but its resourceVersion, for ERROR a `Status`). `who` is the object's identity from `identify`."""

    type: str
    who: Identified
    line: bytes

    @property
    def object(self) -> msgspec.Raw:
        """The object; extracted from the line each time."""
        return _FULL_EVENT.decode(self.line).object


Batch = list[WatchEvent[T]]
RawBatch = list[RawEvent]


class _StatusCode(msgspec.Struct):
    code: int = 500


_EVENT_IDENTITIES = json_decoder(_EventIdentity)
_FULL_EVENT = json_decoder(_FullEvent)
_PEEKS = json_decoder(_ObjectIdentity)
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def identify(raw: bytes | msgspec.Raw) -> Identified:
    """The identity of an object. Only its metadata is read; unreadable fields are left empty."""
    try:
        return _PEEKS.decode(raw).metadata
    except _MALFORMED:
        return Identified()


class LineReader:
    """Parses events from chunks that may be cut anywhere."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[RawEvent]:
        """The events that `chunk` completes. Raises `Unreachable` for a line without an event, which no API
        server sends."""
        lines = chunk.split(b"\n")
        if self._rest:
            # Joined only when the line is complete: a 1 MB object comes in many chunks.
            if len(lines) == 1:
                self._rest.append(chunk)
                return []
            lines[0] = b"".join((*self._rest, lines[0]))
        tail = lines.pop()
        self._rest = [tail] if tail else []
        return [_event(line) for line in lines if line]


def _event(line: bytes) -> RawEvent:
    # Most lines are only read this far: the cache has their object already, as after every own write.
    try:
        seen = _EVENT_IDENTITIES.decode(line)
        return RawEvent(seen.type, seen.object.metadata, line)
    except _MALFORMED:
        return _odd_event(line)


def _odd_event(line: bytes) -> RawEvent:
    try:
        return RawEvent(_FULL_EVENT.decode(line).type, Identified(), line)
    except _MALFORMED as error:
        raise errors.Unreachable(f"a watch was answered with a line that is no event ({error})") from None


def before_error(events: list[RawEvent]) -> tuple[list[RawEvent], errors.ApiError | None]:
    """The events before the first ERROR, and its error."""
    for at, event in enumerate(events):
        if event.type == ERROR:
            return events[:at], _error_of(event)
    return events, None


def _error_of(event: RawEvent) -> errors.ApiError:
    body = bytes(event.object)
    try:
        code = json_decoder(_StatusCode).decode(body).code
    except _MALFORMED:
        code = 500
    return errors.from_response(code, body)
