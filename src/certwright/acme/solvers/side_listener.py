"""What the listeners of HTTP-01 and TLS-ALPN-01 share: TCP servers in a thread of their own, and the
responses that they show, by token or name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from certwright.acme.solvers.admitted import Admissions, Admitted


class SideLoop:
    """Runs coroutines beside the caller's loop. `name` is the thread's, for tools that show threads.

    The coroutines share memory with the rest of the program: single reads and writes of a dict are safe,
    but locks, events and tasks of another loop are not.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return or raise the result of `work`; the first call starts the thread."""
        if self._loop is None:
            # Of the same type as the main loop, which may be faster than Python's default.
            self._loop = type(asyncio.get_running_loop())()
            threading.Thread(target=self._turn, args=(self._loop,), name=self._name, daemon=True).start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def begin(self, work: Coroutine[Any, Any, T]) -> T:
        """As `run`, for starting a server: the thread ends if `work` fails (`OSError`)."""
        try:
            return await self.run(work)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Stop the thread. Running coroutines are cancelled, and not awaited here. Idempotent."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    @staticmethod
    def _turn(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
        finally:
            loop.close()


T = TypeVar("T")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Admitted], Awaitable[None]]
"""Serves one connection. Its writer is closed afterwards."""

_ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - a CA comes from anywhere
_BUFFER = 64 * 1024
_TURNS_TO_OPEN = 4
_POLL_EVERY_S = 0.05
# Requests for responses that do not exist must not pile up.
_MOST_WAITING = 100


class SideListener:
    """TCP servers in a separate thread: a CA must get its response promptly even while this program is busy.

    `serve` is called there for each connection; `limit` is the most that its reader buffers, in bytes.
    `admissions` limits the connections.
    """

    def __init__(
        self, name: str, serve: Serve, *, limit: int = _BUFFER, admissions: Admissions | None = None
    ) -> None:
        self._serve = serve
        self._admissions = admissions or Admissions()
        self._limit = limit
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()
        self._beside = SideLoop(name)

    async def listen(self, host: str, port: int) -> int:
        """Listen, and return the port (0 picks a free one); an empty host is every address of this machine.

        Raises `OSError` if the port is in use or not permitted.
        """
        return await self._beside.begin(self._listen(host, port))

    async def close(self) -> None:
        """Stop listening, and close open connections."""
        if self._servers:
            await self._beside.run(self._end())
        self._beside.close()

    async def _listen(self, host: str, port: int) -> int:
        for number, address in enumerate((host,) if host else _ANY_HOST):
            try:
                server = await asyncio.start_server(self._accept, address, port, limit=self._limit)
            except OSError:
                if number == 0:
                    raise
                break  # A machine without IPv6.
            self._servers.append(server)
            port = port or int(server.sockets[0].getsockname()[1])
        return port

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        # A connection just accepted is not registered yet, or its task has not started; if cancelled now, it
        # would never be closed.
        for _ in range(_TURNS_TO_OPEN):
            await asyncio.sleep(0)
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._servers.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._run(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        admitted = self._admissions.admit(peer[0] if peer else "", writer.transport.abort)
        try:
            await self._serve(reader, writer, admitted)
        finally:
            admitted.release()
            writer.close()
            with suppress(OSError, TimeoutError):
                await writer.wait_closed()


class Shown(Generic[T]):
    """The responses by key; several tasks, distinguished by their UIDs, may have the same key.

    The program's thread writes them, and the listener's thread reads them. `patience_s` is for several
    replicas behind one address: `look` waits that long for an unknown key, because another replica may have
    created the challenge a moment ago.
    """

    def __init__(self) -> None:
        self.patience_s = 0.0
        self._waiting = 0
        self._by_key: dict[str, dict[str, T]] = {}

    def add(self, key: str, uid: str, response: T) -> None:
        """Show the response of a task."""
        # A single assignment, because another thread reads it.
        self._by_key[key] = {**self._by_key.get(key, {}), uid: response}

    def remove(self, key: str, uid: str) -> None:
        """Show it no longer."""
        remaining = {other: value for other, value in self._by_key.get(key, {}).items() if other != uid}
        if remaining:
            self._by_key[key] = remaining
        else:
            self._by_key.pop(key, None)

    async def wait_for(self, key: str) -> T | None:
        """A response for the key, as soon as there is one. None: there is none."""
        left_s = self.patience_s
        if key not in self._by_key and left_s and self._waiting < _MOST_WAITING:
            self._waiting += 1
            try:
                # Another thread adds it, whose loop cannot set an event of this loop.
                while key not in self._by_key and left_s > 0:
                    await asyncio.sleep(_POLL_EVERY_S)
                    left_s -= _POLL_EVERY_S
            finally:
                self._waiting -= 1
        return next(iter(self._by_key.get(key, {}).values()), None)
