"""The child: `python -m certwright.acme.carrier`, with one end of a socket pair as its standard input.

Started by `child.py`, for nobody to type. It ends when the other end is closed, however its parent ended.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys

from certwright.acme.carrier.carrying import Carrying
from certwright.kit import logs, loop


async def _carry(end: socket.socket) -> None:
    _, carrying = await asyncio.get_running_loop().create_unix_connection(Carrying, sock=end)
    await carrying.ended
    await carrying.close()


def main() -> None:
    """Carry requests until the parent is gone."""
    # Ctrl-C reaches all processes of a terminal, and what stops a service often all of its processes: what is
    # under way ends when the parent says so.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logs.set_up()
    gc.freeze()
    end = socket.socket(fileno=sys.stdin.fileno())
    loop.run(_carry(end))


if __name__ == "__main__":
    main()
