"""A client without manners: asks for the same list over many connections at once, for ever, and minds no
answer. Run as a program: URL, CA file, token, how many connections."""

from __future__ import annotations

import asyncio
import ssl
import sys
from urllib.parse import urlsplit


async def _ask_for_ever(url: str, ca_file: str, token: str) -> None:
    parts = urlsplit(url)
    context = ssl.create_default_context(cafile=ca_file)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    request = f"GET {parts.path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode()
    while True:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))


async def _main(url: str, ca_file: str, token: str, connections: str) -> None:
    tasks = [asyncio.create_task(_ask_for_ever(url, ca_file, token)) for _ in range(int(connections))]
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
