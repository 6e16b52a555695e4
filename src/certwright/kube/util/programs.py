"""Child processes: run and wait for them beside the event loop.

They are started by `subprocess.Popen`, never by the loop: uvloop forks, and to fork a process of 400 MB takes
40 ms, in which nothing else is done. `subprocess` needs no copy of the process (vfork) and takes 1 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from subprocess import Popen
from threading import Thread
from typing import IO, TypeVar

T = TypeVar("T")

_PIECE = 65_536
# A process started by the killed program in another process group may keep the pipe open forever.
_DEATH_S = 2.0


async def read_output(process: Popen[bytes], pipe: IO[bytes], *, most: int, timeout_s: float | None) -> bytes:
    """The last `most` bytes of `pipe`, when the program has ended and the pipe has no writer any more.

    Raises `TimeoutError` after `timeout_s` seconds. Then, and if the caller is cancelled, the program is
    killed, with its process group if it has its own (`process_group=0`).
    """
    return await _until_ended(process, lambda: _listen(process, pipe, most), timeout_s)


async def wait_ended(process: Popen[bytes], *, timeout_s: float | None) -> int:
    """Return the exit status when the program has ended, even if its children continue.

    Raises `TimeoutError`, and kills, as `read_output` does.
    """
    return await _until_ended(process, process.wait, timeout_s)


async def _until_ended(process: Popen[bytes], work: Callable[[], T], timeout_s: float | None) -> T:
    said: Future[T] = Future()
    said.set_running_or_notify_cancel()
    # A daemon thread: this process does not wait for it when it ends, and no thread pool loses it.
    Thread(target=lambda: said.set_result(work()), name="program", daemon=True).start()
    ended = asyncio.wrap_future(said)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(ended)
    finally:
        if not ended.done():
            _kill(process)
            await asyncio.wait((ended,), timeout=_DEATH_S)


def _listen(process: Popen[bytes], pipe: IO[bytes], most: int) -> bytes:
    heard = b""
    with pipe:
        while piece := os.read(pipe.fileno(), _PIECE):
            heard = (heard + piece)[-most:]
    process.wait()
    return heard


def _kill(process: Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg") and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
