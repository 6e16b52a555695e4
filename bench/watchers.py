"""Watchers in a process of their own: when does each hear of which write?

    python -m bench.watchers --server https://127.0.0.1:8443 --path /api/v1/secrets --certificate admin.pem \
        --count 100

Writes one line when all watch, and reads one when the writes are done: how many events there are to hear,
which it waits for. Then it prints what was heard as JSON: the stamp that the writer put in the object
(`spec.at`, right before it asked for the write), and the moment when the event was read off the TLS
connection; both by the machine's one monotonic clock, in nanoseconds. Beside it stands for how long this
process itself did not get to read, at the longest: no delay below that is the server's for certain.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import ssl
import sys
import time
from collections import deque
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httptools

from certwright.kit.event_loop import run
from support.oracle import client_context

_LATEST_S = 20.0
_QUIET_S = 0.001
_BEAT_S = 0.005
_AT_ONCE = 4
_LONGEST_STAMP = 64
_STAMP = b'"at":"'


class Unread:
    """What has come in and is read in quiet moments, so that no watcher waits while another's is read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[tuple[Watcher, int, bytes]] = deque()
        self._last = 0

    def add(self, watcher: Watcher, data: bytes) -> None:
        """Note the moment."""
        self._last = time.monotonic_ns()
        if not self._pieces:
            self._loop.call_later(_QUIET_S, self._read_some)
        self._pieces.append((watcher, self._last, data))

    def _read_some(self) -> None:
        is_quiet = time.monotonic_ns() - self._last > _QUIET_S * 1e9
        for _ in range(min(_AT_ONCE, len(self._pieces)) if is_quiet else 0):
            watcher, at, data = self._pieces.popleft()
            watcher.read(at, data)
        if self._pieces:
            self._loop.call_later(0 if is_quiet else _QUIET_S, self._read_some)


class Pulse:
    """Beats on the event loop; `longest_ns` was between two beats."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = time.monotonic_ns()
        self.longest_ns = 0
        self._beat()

    def _beat(self) -> None:
        now = time.monotonic_ns()
        self.longest_ns = max(self.longest_ns, now - self._last)
        self._last = now
        self._loop.call_later(_BEAT_S, self._beat)


class Watcher(asyncio.Protocol):
    """One watch. `heard` are pairs of stamp and moment; `opened` is given the status of the answer."""

    def __init__(self, request: bytes, unread: Unread) -> None:
        self.heard: list[tuple[int, int]] = []
        self.opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._request = request
        # A chunk may end anywhere, also within a stamp.
        self._parser = httptools.HttpResponseParser(self)
        self._text: list[bytes] = []
        self._unread = unread

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """It is read later."""
        self._unread.add(self, data)

    def read(self, at: int, data: bytes) -> None:
        """Find the stamps in what came in at that moment."""
        self._parser.feed_data(data)
        rest, *parts = b"".join(self._text).split(_STAMP)
        for text in parts:
            end = text.find(b'"')
            if end < 0:  # it goes on in what comes next
                rest = _STAMP + text
            else:
                self.heard.append((int(text[:end]), at))
                rest = text[end:]
        self._text = [rest[-_LONGEST_STAMP:]]

    def on_headers_complete(self) -> None:
        """The parser has read the head of the answer."""
        self.opened.set_result(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        """The parser has read a piece of events."""
        self._text.append(body)


async def _run(options: argparse.Namespace) -> None:
    url = urlsplit(options.server)
    context: ssl.SSLContext = client_context(options.certificate)
    target = f"{options.path}?watch=true&resourceVersion={options.revision}"
    request = f"GET {target} HTTP/1.1\r\nhost: {url.netloc}\r\naccept: application/json\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    watchers: list[Watcher] = []
    unread = Unread()
    for _ in range(options.count):
        _, watcher = await loop.create_connection(
            lambda: Watcher(request, unread), url.hostname or "", url.port or 443, ssl=context
        )
        assert await watcher.opened == 200
        watchers.append(watcher)
    print("watching", flush=True)
    pulse = Pulse()
    expected = int(await asyncio.to_thread(sys.stdin.readline))
    deadline = loop.time() + _LATEST_S
    while sum(len(watcher.heard) for watcher in watchers) < expected and loop.time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # what is waited for comes in on a hundred connections
    heard = [pair for watcher in watchers for pair in watcher.heard]
    print(json.dumps({"heard": heard, "away_ns": pulse.longest_ns}), flush=True)


def main() -> None:
    """Watch until a line comes and all that it tells of was heard."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--path", required=True, help="the collection")
    parser.add_argument("--certificate", type=Path, required=True, help="certificate and key, PEM")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--revision", default="0")
    gc.disable()  # it would stop the watchers while it looks at all that they have heard
    run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
