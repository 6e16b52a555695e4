"""Servers that the API server and the notifier call: an answer without end ends in the caller's own error."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from certwright.kube.apiserver.model.definitions import WebhookTarget
from certwright.kube.apiserver.webhooks.client import MAX_ANSWER, CallFailed, WebhookClient
from certwright.notifications import destinations
from certwright.notifications.messages import Digest, SendError
from certwright.notifications.settings import SmtpSettings, WebhookSettings

DIGEST = Digest(sender="test", at=datetime(2026, 1, 1, tzinfo=UTC), new=(), resolved=())
BUFFERS = 12 * 2**20
"""Bytes that the sockets and the event loops of both sides hold, at most."""
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
HTTP_ANSWERS = {
    "lines of a head": (b"HTTP/1.1 200 OK\r\n", b"x-y: z\r\n" * 5000),
    "one line of a head": (b"HTTP/1.1 200 OK\r\nx-y: ", b"z" * 65536),
    "a status line": (b"HTTP/1.1 200 ", b"O" * 65536),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "small chunks": (CHUNKED, b"8\r\nxxxxxxxx\r\n" * 5_000),
    "a body": (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65536),
}
SMTP_ANSWERS = {
    "lines of a greeting": (b"", b"220-mail\r\n" * 5000),
    "one line of a greeting": (b"220 ", b"x" * 65536),
    "lines of an answer": (b"220 mail\r\n", b"250-SIZE\r\n" * 5000),
}


async def no_service(_namespace: str, name: str) -> str:
    raise CallFailed(name)


class EndlessServer:
    """A server that answers each connection with a beginning, and then the same bytes without end."""

    def __init__(self, first: bytes, piece: bytes) -> None:
        self.sent = 0
        self._first, self._piece = first, piece

    async def serve(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(self._first)
            while not writer.is_closing() and self.sent < 4 * BUFFERS:
                writer.write(self._piece)
                await writer.drain()
                self.sent += len(self._piece)
                await asyncio.sleep(0)
        writer.close()


async def call(
    answer: tuple[bytes, bytes], send: Callable[[int, str], Awaitable[object]], *, tls: bool
) -> int:
    """Have `send` call such a server, by its port and CA; the bytes that the server could send."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    endless = EndlessServer(*answer)
    server = await asyncio.start_server(endless.serve, "127.0.0.1", 0, ssl=context if tls else None)
    try:
        async with asyncio.timeout(60):
            await send(server.sockets[0].getsockname()[1], authority.cert_pem.bytes().decode())
    finally:
        server.close()
    return endless.sent


BOUNDS = {
    # Only the body is counted.
    "small chunks": 2 * MAX_ANSWER + BUFFERS,
    # The HTTP library skips them: the timeout of the call ends it.
    "interim answers": None,
}


@pytest.mark.parametrize("answer", HTTP_ANSWERS)
@pytest.mark.parametrize("form", ["an admission webhook", "an aggregated API server"])
async def test_the_api_server_gives_up(form: str, answer: str) -> None:
    async def send(port: int, ca: str) -> None:
        client = WebhookClient(no_service)
        target = WebhookTarget(f"https://127.0.0.1:{port}/", ca)
        with pytest.raises(CallFailed):  # noqa: PT012 - one of two calls
            if form == "an admission webhook":
                await client.post(target, b"{}", timeout_s=timeout_s)
            else:
                await client.send(target, "GET", "/", headers=(), body=b"", pair_pem=b"", timeout_s=timeout_s)
        await client.close()

    bound = BOUNDS.get(answer, MAX_ANSWER + BUFFERS)
    timeout_s = 10 if bound is not None else 1
    sent = await call(HTTP_ANSWERS[answer], send, tls=True)
    assert bound is None or sent <= bound


async def test_a_compressed_answer_is_refused_before_it_is_unpacked() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n"

    async def send(port: int, ca: str) -> None:
        client = WebhookClient(no_service)
        with pytest.raises(CallFailed, match="compressed"):
            await client.post(WebhookTarget(f"https://127.0.0.1:{port}/", ca), b"{}", timeout_s=10)
        await client.close()

    assert await call((head, gzip.compress(bytes(2**20))), send, tls=True) <= BUFFERS


@pytest.mark.parametrize("answer", HTTP_ANSWERS.values(), ids=HTTP_ANSWERS)
async def test_the_notifier_gives_up_on_a_webhook(answer: tuple[bytes, bytes], tmp_path: Path) -> None:
    async def send(port: int, ca: str) -> None:
        (tmp_path / "ca.crt").write_text(ca)
        settings = WebhookSettings(url=f"https://127.0.0.1:{port}/", ca_file=str(tmp_path / "ca.crt"))
        # A body is not read: the status line tells whether the digest has arrived.
        with contextlib.suppress(SendError):
            await asyncio.to_thread(destinations.send_to_webhook, settings, DIGEST)

    assert await call(answer, send, tls=True) <= BUFFERS


@pytest.mark.parametrize("answer", SMTP_ANSWERS.values(), ids=SMTP_ANSWERS)
async def test_the_notifier_gives_up_on_a_mail_server(answer: tuple[bytes, bytes]) -> None:
    async def send(port: int, _ca: str) -> None:
        settings = SmtpSettings(
            host="127.0.0.1", port=port, tls="none", sender="a@example.com", to=("b@example.com",)
        )
        with pytest.raises(SendError):
            await asyncio.to_thread(destinations.send_mail, settings, DIGEST)

    assert await call(answer, send, tls=False) <= BUFFERS
