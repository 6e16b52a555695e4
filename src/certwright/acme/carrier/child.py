"""The child's life as the parent sees it: started when there is something to send, ended when there is not.

Its environment is what TLS, proxies and the system's resolver look at, and where its modules are. It inherits
one end of a socket pair, as its standard input, and standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from subprocess import DEVNULL, Popen
from typing import TypeVar

from certwright.acme.carrier.link import Ended, Link

_log = logging.getLogger(__name__)

R = TypeVar("R")

# Its modules come from where ours come from, and from nowhere else: not from the working directory (-P), not
# from the user's own (-s).
_COMMAND = (sys.executable, "-P", "-s", "-m", "certwright.acme.carrier")
# Renewals are hours apart: to start it again for the next costs less than to keep its 40 MB.
_IDLE_S = 60.0
_RUSH_S = 2.0
_START_S = 30.0
_PATIENCE_S = 30.0
# What is done for a proof has shorter timeouts, unless every one of many name servers takes its time.
_PROOF_S = 120.0
_MOST_FUTILE = 3
_GRACE_S = 0.5
_ENVIRONMENT = frozenset(
    (
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "ssl_cert_file",
        "ssl_cert_dir",
        "openssl_conf",
        "openssl_modules",
        "ld_library_path",
        "localdomain",
        "res_options",
    )
)


class CannotCarry(Exception):
    """It is not worth a child, or none can be started: nothing was sent."""


class Child:
    """Starts the child, one at a time, and ends it after `idle_s` seconds without a request.

    It is started when `link` has been called `rush` times within two seconds. One that takes longer than
    `start_s` to start, or is `patience_s` late with an answer, is ended too. After three in a row that have
    answered nothing no other is started. What is done for a proof may take `proof_s`.
    """

    def __init__(
        self,
        command: Sequence[str] = _COMMAND,
        *,
        rush: int = 1,
        idle_s: float = _IDLE_S,
        start_s: float = _START_S,
        patience_s: float = _PATIENCE_S,
        proof_s: float = _PROOF_S,
    ) -> None:
        self.proof_s = proof_s
        self._command = command
        self._asked_at: deque[float] = deque(maxlen=rush)
        self._idle_s = idle_s
        self._make_link = partial(Link, start_s=start_s, patience_s=patience_s)
        self._starting: asyncio.Task[Link | None] | None = None
        self._link: Link | None = None
        self._life: asyncio.Task[None] | None = None
        self._futile = 0
        self._closed = False

    async def link(self) -> Link:
        """The way to a running child. Raises `CannotCarry`, and `Ended` once this is closed."""
        while self._link is None or not self._link.is_open:
            if self._starting is None or self._starting.done():
                if not self._is_rush():
                    raise CannotCarry
                self._starting = asyncio.create_task(self._start())
            # Whoever waits may be cancelled; others wait for the same child.
            link = await asyncio.shield(self._starting)
            if self._closed:
                raise Ended("this process is about to end")
            if link is None:
                raise CannotCarry
            # One that has ended again, for want of work say, before we had our turn, is started once more.
        return self._link

    async def prove(self, work: Callable[[Link], Awaitable[R]]) -> R | None:
        """What comes of work that may be done twice; None where this process should do it itself.

        Raises `TimeoutError` after `proof_s`.
        """
        try:
            async with asyncio.timeout(self.proof_s):
                return await work(await self.link())
        except (CannotCarry, Ended, UnicodeEncodeError):
            return None

    def _is_rush(self) -> bool:
        asked_at, now_s = self._asked_at, asyncio.get_running_loop().time()
        asked_at.append(now_s)
        return len(asked_at) == asked_at.maxlen and now_s - asked_at[0] <= _RUSH_S

    def close_sender(self, sender: int) -> None:
        """Have it let go of the connections of a sender."""
        if self._link is not None:
            self._link.close_sender(sender)

    async def close(self) -> None:
        """End the child; return when it is gone. No other is started."""
        self._closed = True
        if self._link is not None:
            self._link.end()
        if self._starting is not None:
            await asyncio.wait([self._starting])
        await self._former_gone()

    async def _start(self) -> Link | None:
        """None where no child runs, and none should be waited for."""
        await self._former_gone()
        if self._closed or self._futile >= _MOST_FUTILE:
            return None
        try:
            process, self._link = await self._run()
        except OSError as error:
            self._count_futile(f"cannot be started: {error}")
            return None
        self._life = asyncio.create_task(self._see_through(process, self._link))
        return self._link if await self._link.begins() else None

    async def _former_gone(self) -> None:
        if self._life is not None:
            await self._life

    async def _run(self) -> tuple[Popen[bytes], Link]:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = _spawn(self._command, theirs)
            except OSError:
                ours.close()
                raise
        loop = asyncio.get_running_loop()
        try:
            _, link = await loop.create_unix_connection(self._make_link, sock=ours)
        except BaseException:
            ours.close()
            process.kill()
            process.wait()
            raise
        if self._closed:  # meanwhile
            link.end()
        return process, link

    async def _see_through(self, process: Popen[bytes], link: Link) -> None:
        """Return when the child is gone, and nothing of it left."""
        try:
            was_idle = await self._idle_or_lost(link)
            await _ended(process)
        finally:
            process.kill()
            process.wait()
        if link.has_answered:
            self._futile = 0
        elif not (was_idle or self._closed):
            self._count_futile(f"ends before it has done anything (exit status {process.returncode})")

    async def _idle_or_lost(self, link: Link) -> bool:
        """Whether it was ended for want of work; else the socket was closed."""
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    await link.lost.wait()
                    return False
            except TimeoutError:
                if link.idle_s >= self._idle_s:
                    link.end()
                    return True

    def _count_futile(self, why: str) -> None:
        self._futile += 1
        if self._futile == _MOST_FUTILE:
            _log.warning(
                "ACME servers are asked by this process itself from now on: the one that should do so %s", why
            )


def _spawn(command: Sequence[str], end: socket.socket) -> Popen[bytes]:
    # Not by the event loop's own: that copies the page tables of this process, which takes 0.1 s where it is
    # large; this takes 1 ms.
    return Popen(command, stdin=end.fileno(), stdout=DEVNULL, env=_environment())


async def _ended(process: Popen[bytes]) -> None:
    """Return when it has ended by itself, or has had the time for that."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            # Not `wait` in a thread: all of those may be waiting for name servers.
            while process.poll() is None:  # noqa: ASYNC110 - what another process does, tells no event
                await asyncio.sleep(_GRACE_S / 50)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.lower() in _ENVIRONMENT}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
