"""Programs that are run beside the event loop, and seen through to their end.

They are started by `subprocess.Popen`, never by the loop: uvloop forks, and to fork a process of 400 MB takes
40 ms, in which nothing else is done. `subprocess` needs no copy of the process (vfork) and takes 1 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from concurrent.futures import Future
from subprocess import Popen
from threading import Thread
from typing import IO

_PIECE = 65_536
# What a killed program has started in a group of its own may hold the pipe open for ever.
_DEATH_S = 2.0


async def last_words(process: Popen[bytes], pipe: IO[bytes], *, most: int, timeout_s: float | None) -> bytes:
    """Return when the program has ended, and nobody can write to its `pipe` any more: the last `most` bytes.

    Raises `TimeoutError` after `timeout_s` seconds. Then, and where the caller is cancelled, it is killed,
    with all else in its process group if that is its own (`process_group=0`).
    """
    said: Future[bytes] = Future()
    said.set_running_or_notify_cancel()
    # A thread that is not waited for when this process ends, nor taken from others.
    Thread(target=_listen, args=(process, pipe, most, said), name="program", daemon=True).start()
    ended = asyncio.wrap_future(said)
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(ended)
    finally:
        if not ended.done():
            _kill(process)
            await asyncio.wait((ended,), timeout=_DEATH_S)


def _listen(process: Popen[bytes], pipe: IO[bytes], most: int, said: Future[bytes]) -> None:
    heard = b""
    with pipe:
        while piece := os.read(pipe.fileno(), _PIECE):
            heard = (heard + piece)[-most:]
    process.wait()
    said.set_result(heard)


def _kill(process: Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg") and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
