"""What both ends of the socket have in common: messages instead of bytes, and to know when there is room."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar, cast

from certwright.acme.carrier.frames import BadFrame, Frames

M = TypeVar("M")

_MUCH = 2**16


class Framed(asyncio.Protocol, ABC, Generic[M]):
    """One end, at which messages of type `M` come in. What goes out is encoded already (`_write`)."""

    def __init__(self, frames: Frames[M]) -> None:
        self._frames = frames
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._to_write = bytearray()

    @abstractmethod
    def _take(self, message: M) -> None:
        """Do what the message asks for."""

    @abstractmethod
    def _misled(self, error: BadFrame) -> None:
        """What came is no message: close the socket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._socket = cast("asyncio.WriteTransport", transport)  # uvloop's is none by name

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            for message in self._frames.feed(data):
                self._take(message)
        except BadFrame as error:
            self._misled(error)

    def _write(self, frame: bytes) -> None:
        """Have it written with all else of this turn of the loop: each write wakes the other process."""
        if not self._to_write:
            asyncio.get_running_loop().call_soon(self._flush)
        self._to_write += frame
        if len(self._to_write) >= _MUCH:
            # At once: whoever comes next must hear that there is no room.
            self._flush()

    def _flush(self) -> None:
        if self._to_write and not self._socket.is_closing():
            self._socket.write(bytes(self._to_write))
        self._to_write.clear()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol`."""
        self._can_write.set()
