"""A TCP load balancer: each connection goes to the next of its backends, as with HAProxy's `roundrobin`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence


@contextlib.asynccontextmanager
async def balancing(port: int, backends: Sequence[int]) -> AsyncIterator[None]:
    """Listen on the port of 127.0.0.1, for backends there."""
    turns = itertools.cycle(backends)

    tasks: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", next(turns))
            with contextlib.closing(there_writer):
                await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(relay(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    async with server:
        yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.write_eof()
