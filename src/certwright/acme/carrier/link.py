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


class Ended(Exception):
    """The child has ended, or does not answer: what came of the request is not known."""


class Link(Framed[Result]):
    """One child's socket. `lost` is set when it is closed, by whichever end.

    A request may take `patience_s` above the time that the child gives it: the child has to start.
    """

    def __init__(self, *, patience_s: float) -> None:
        super().__init__(results())
        self._patience_s = patience_s
        self.lost = asyncio.Event()
        self.has_answered = False
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Result]] = {}
        self._opened: set[int] = set()
        self._last_s = self._loop.time()

    async def ask(self, options: Open, request: Request) -> Result:
        """What has come of the request. Raises `Ended`, and `UnicodeEncodeError` for a text that is none."""
        await self._writable()
        number = next(self._numbers)
        sender, accept = options.sender, request.accept
        frame = encode(Ask(number, sender, request.method, request.url, request.body, accept))
        if sender not in self._opened:
            self._opened.add(sender)
            self._tell(options)
        self._socket.write(frame)
        return await self._result_of(number, options.timeout_s + self._patience_s)

    async def look(self, looking: Looking, task: Task) -> Result:
        """What the child has seen; for however long it looks. Raises `Ended`, and `UnicodeEncodeError` for a
        text that is none."""
        await self._writable()
        number = next(self._numbers)
        self._tell(Look(number, looking, task))
        return await self._result_of(number, None)

    async def show(self, updating: Updating, task: Task, *, away: bool) -> Result:
        """What has come of it, as `look`."""
        await self._writable()
        number = next(self._numbers)
        self._tell(Show(number, updating, task, away))
        return await self._result_of(number, None)

    def close_sender(self, sender: int) -> None:
        """Have the child let go of its connections."""
        if sender in self._opened and not self.lost.is_set():
            self._opened.remove(sender)
            self._tell(Close(sender))

    def end(self, why: str = "the process that carries requests has ended") -> None:
        """Close the socket, which ends the child; whoever waits hears `Ended`."""
        self.lost.set()
        self._can_write.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Ended(why))
        self._socket.abort()

    @property
    def idle_s(self) -> float:
        """For how long nothing has been under way."""
        return 0.0 if self._waiting else self._loop.time() - self._last_s

    def connection_lost(self, _error: Exception | None) -> None:
        """See `asyncio.BaseProtocol`."""
        self.end()

    def _take(self, result: Result) -> None:
        self.has_answered = True
        waiting = self._waiting.get(result.number)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def _misled(self, error: BadFrame) -> None:
        self.end(f"the process that carries requests says what cannot be understood: {error}")

    async def _writable(self) -> None:
        await self._can_write.wait()
        if self.lost.is_set():
            raise Ended("the process that carries requests has ended")

    async def _result_of(self, number: int, within_s: float | None) -> Result:
        waiting: asyncio.Future[Result] = self._loop.create_future()
        self._waiting[number] = waiting
        overdue = None
        if within_s is not None:
            told = "the process that carries requests stands still"
            overdue = self._loop.call_later(within_s, self.end, told)
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
        self._socket.write(encode(order))
