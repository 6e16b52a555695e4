"""HTTP-01 solver: a listener of this process serves the key authorization (RFC 8555 §8.3)."""

from __future__ import annotations

import asyncio

from certwright.acme.protocol.challenges import WELL_KNOWN
from certwright.acme.solvers.admitted import Admissions, Admitted
from certwright.acme.solvers.contract import Task
from certwright.acme.solvers.side_listener import Shown, SideListener

_LONGEST_HEAD = 16 * 1024
_TIMEOUT_S = 10.0


class Responder:
    """One listener for all tasks, which selects the response by the token.

    Tokens are random, so the name and port of a request do not matter: a reverse proxy in front, or a
    redirect to another port, changes nothing. Every response closes the connection (RFC 9112 §9.6).
    `shown` has the key authorizations by token; `admissions` limits the connections.
    """

    def __init__(self, admissions: Admissions | None = None) -> None:
        self.shown: Shown[str] = Shown()
        self._listener = SideListener("http-01", self._serve, limit=_LONGEST_HEAD, admissions=admissions)

    async def listen(self, host: str, port: int) -> int:
        return await self._listener.listen(host, port)

    async def close(self) -> None:
        await self._listener.close()

    async def present(self, task: Task) -> None:
        self.shown.add(task.token, task.uid, task.key)

    async def clean_up(self, task: Task) -> None:
        self.shown.remove(task.token, task.uid)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _admitted: Admitted
    ) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass

    async def _answer(self, head: bytes) -> bytes:
        """The response to a request with this head."""
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path.startswith("http://"):
            # A proxy may send the absolute form (RFC 9112 §3.2.2).
            path = "/" + path.removeprefix("http://").partition("/")[2]
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed\r\nAllow: GET, HEAD")
        token = path.removeprefix(WELL_KNOWN) if path.startswith(WELL_KNOWN) else ""
        proof = await self.shown.wait_for(token) if token else None
        if proof is None:
            body, kind = b"no such challenge\n", "text/plain; charset=utf-8"
            return _response("404 Not Found", body, kind, with_body=method == "GET")
        # "The client … SHOULD … application/octet-stream", and what browsers show as text is safe as well.
        return _response("200 OK", proof.encode(), with_body=method == "GET")


def _response(
    status: str, body: bytes = b"", kind: str = "application/octet-stream", *, with_body: bool = True
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
