"""The parent's end of the socket: who waits for which answer."""

from __future__ import annotations

import asyncio
import itertools

from certwright.acme.carrier.framed import Framed
from certwright.acme.carrier.frames import (
    Ask,
    BadFrame,
    Close,
    Drop,
    Hello,
    Look,
    Open,
    Order,
    Result,
    Show,
    encode,
    results,
)
from certwright.acme.protocol.messages import Request
from certwright.acme.solvers.contract import Looking, Task, Updating

_STANDS_STILL = "the process that carries requests stands still"


class Ended(Exception):
    """The child has ended, or does not answer: what came of the request is not known."""


class Link(Framed[Hello | Result]):
    """One child's socket. `lost` is set when it is closed, by whichever end.

    The child has `start_s` to start. It may leave the socket without room for `patience_s`, and a request may
    take as much above the time that the child gives it.
    """

    def __init__(self, *, start_s: float, patience_s: float) -> None:
        super().__init__(results())
        self._start_s = start_s
        self._patience_s = patience_s
        self.lost = asyncio.Event()
        self.has_answered = False
        self._loop = asyncio.get_running_loop()
        self._begins: asyncio.Future[bool] = self._loop.create_future()
        self._ended_by = ""
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Result]] = {}
        self._opened: set[int] = set()
        self._last_s = self._loop.time()

    async def begins(self) -> bool:
        """Whether the child runs: waits until it says so, or ends."""
        try:
            async with asyncio.timeout(self._start_s):
                return await self._begins
        except TimeoutError:
            self.end(_STANDS_STILL)
            return False

    async def ask(self, options: Open, request: Request) -> Result:
        """What has come of the request. Raises `Ended`, and `UnicodeEncodeError` for a text that is none."""
        await self._writable()
        number = next(self._numbers)
        sender, accept = options.sender, request.accept
        frame = encode(Ask(number, sender, request.method, request.url, request.body, accept))
        if sender not in self._opened:
            self._tell(options)
            self._opened.add(sender)
        self._write(frame)
        return await self._result_of(number, options.timeout_s + self._patience_s)

    async def look(self, looking: Looking, task: Task) -> Result:
        """What the child has seen; for however long it looks. Raises `Ended`, and `UnicodeEncodeError` for a
        text that is none."""
        await self._writable()
        number = next(self._numbers)
        self._tell(Look(number, looking, task))
        return await self._result_of(number)

    async def show(self, updating: Updating, task: Task, *, away: bool) -> Result:
        """What has come of it, as `look`."""
        await self._writable()
        number = next(self._numbers)
        self._tell(Show(number, updating, task, away))
        return await self._result_of(number)

    def close_sender(self, sender: int) -> None:
        """Have the child let go of its connections."""
        if sender in self._opened and not self.lost.is_set():
            self._opened.remove(sender)
            self._tell(Close(sender))

    def end(self, why: str = "the process that carries requests has ended") -> None:
        """Close the socket, which ends the child; whoever waits hears `Ended`."""
        self._ended_by = self._ended_by or why
        self.lost.set()
        self._can_write.set()
        if not self._begins.done():
            self._begins.set_result(False)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Ended(self._ended_by))
        self._socket.abort()

    @property
    def is_open(self) -> bool:
        """Whether the child runs, and has not ended."""
        return self._begins.done() and not self.lost.is_set()

    @property
    def idle_s(self) -> float:
        """For how long nothing has been under way; its start is something."""
        return self._loop.time() - self._last_s if self._begins.done() and not self._waiting else 0.0

    def connection_lost(self, _error: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self.end()

    def _take(self, message: Hello | Result) -> None:
        if isinstance(message, Hello):
            self._begin()
            return
        self.has_answered = True
        waiting = self._waiting.get(message.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def _begin(self) -> None:
        self._last_s = self._loop.time()
        if not self._begins.done():
            self._begins.set_result(True)

    def _misled(self, error: BadFrame) -> None:
        self.end(f"the process that carries requests says what cannot be understood: {error}")

    async def _writable(self) -> None:
        if not self._can_write.is_set():
            await self._room()
        if self.lost.is_set():
            raise Ended(self._ended_by)

    async def _room(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._can_write.wait()
        except TimeoutError:
            self.end(_STANDS_STILL)

    async def _result_of(self, number: int, within_s: float | None = None) -> Result:
        waiting: asyncio.Future[Result] = self._loop.create_future()
        self._waiting[number] = waiting
        overdue = None
        if within_s is not None:
            overdue = self._loop.call_later(within_s, self.end, _STANDS_STILL)
        try:
            return await waiting
        finally:
            if overdue is not None:
                overdue.cancel()
            del self._waiting[number]
            self._last_s = self._loop.time()
            if waiting.cancelled() and not self.lost.is_set():
                self._tell(Drop(number))

    def _tell(self, order: Order) -> None:
        self._write(encode(order))
