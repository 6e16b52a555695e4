"""The HTTP face: a handler behind TLS, served by uvicorn.

The handler knows nothing of this module; a faster face could take its place (`AsgiApp` holds what ASGI
needs, the rest what uvicorn needs).

Source: ASGI specification 3.0, HTTP connection scope.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from certwright.apiserver import wire
from certwright.apiserver.fairness import too_many
from certwright.apiserver.protocol import (
    CERTIFICATE,
    CONNECTION,
    HANDSHAKE_S,
    KEEP_ALIVE_S,
    WRITE_S,
    HttpProtocol,
)
from certwright.apiserver.representations.negotiation import JSON
from certwright.apiserver.routes import is_watch
from certwright.apiserver.verbs.forms import failure
from certwright.apiserver.wire import Message, Send
from certwright.kit.exchange import Handler, PushStream, Request, Response, Write
from certwright.resources.errors import Details, TooLarge, TooManyRequests, Unavailable

_log = logging.getLogger(__name__)

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request body, as Kubernetes has it."""
MAX_BODIES = 128 * 1024 * 1024
"""Bytes of all bodies that are on their way: nobody knows yet who sends them."""
GZIP_FROM = 128 * 1024
"""Answers above this size are compressed for clients that take gzip, as Kubernetes does."""
_RETRY_AFTER_S = 5

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class AsgiApp:
    """A handler as an ASGI application."""

    def __init__(self, handler: Handler, *, is_fair: bool = True) -> None:
        self._handler = handler
        self._streams: set[asyncio.Task[None]] = set()
        self._closing = False
        self._arriving = 0  # bytes of bodies that are not whole yet
        self._extra = wire.ExtraHeaders(is_fair=is_fair)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise ValueError(f"only HTTP is served here, not {scope['type']}")
        request, bare = _request(scope), send
        send = self._extra.added(request, send)
        if (refusal := self._refusal(scope)) is not None:
            refusal.headers["connection"] = "close"
            await _send_whole(request, refusal, send)
            return
        try:
            request.body = await self._read_body(request, receive)
        except (TooLarge, TooManyRequests) as error:
            response = failure(error)
            response.headers["connection"] = "close"
        except _Gone:
            return
        else:
            response = await self._handler(request)
        if response.stream is None:
            await _send_whole(request, response, send)
        else:
            if isinstance(response.stream, PushStream) and (write := _writer(scope)) is not None:
                response.stream.push_into(write)
            await self._send_stream(request, response, response.stream, receive, send, bare)

    async def _read_body(self, request: Request, receive: Receive) -> bytes:
        """The whole body. Raises `TooLarge`, before reading it where its length is given, `TooManyRequests`
        while others send as much as there is room for, and `_Gone`."""
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > MAX_BODY:
            raise _too_large()
        if length == "0" and "transfer-encoding" not in request.headers:
            return b""
        body = bytearray()  # not a list: a part may be one byte
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                part: bytes = message.get("body", b"")
                size += len(part)
                self._arriving += len(part)
                if size > MAX_BODY:
                    raise _too_large()
                is_last = not message.get("more_body", False)
                if is_last and not body:
                    return part
                body += part
                if is_last:
                    return bytes(body)
                if self._arriving > MAX_BODIES:
                    raise too_many()
        finally:
            self._arriving -= size

    def _refusal(self, scope: Scope) -> Response | None:
        """What everyone is told while nobody is served."""
        if self._closing:
            # A watcher whose stream was ended asks again at once, on the connection that it still has.
            return failure(Unavailable("the server is stopping"))
        connection = scope.get("state", {}).get(CONNECTION)
        if connection is not None and connection.is_too_many:
            return failure(
                Unavailable(
                    "the server has as many connections as it takes, please try again later",
                    details=Details(retry_after_seconds=_RETRY_AFTER_S),
                )
            )
        return None

    async def _send_stream(
        self,
        request: Request,
        response: Response,
        stream: AsyncIterator[bytes],
        receive: Receive,
        send: Send,
        bare: Send,
    ) -> None:
        """Send the head, then (`bare`) chunk after chunk until the stream ends, the client goes, or we close.

        Who only sends never learns that the client has gone, so somebody must wait for that beside it.
        """
        sent = stream
        # A list is streamed because it is large; a watch must reach its client event by event, uncompressed.
        if wire.takes_gzip(request) and not is_watch(request.target):
            response.headers["content-encoding"] = "gzip"
            response.headers["vary"] = "Accept-Encoding"
            sent = wire.compressed(stream)
        # Before the task that may be cancelled: every request gets an answer, also one that comes at the end.
        await send(_head(response))
        pump = asyncio.ensure_future(_pump(sent, bare))
        gone = asyncio.ensure_future(_disconnected(receive))
        self._streams.add(pump)
        if self._closing:
            pump.cancel()
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.discard(pump)
            cut = not pump.done()
            pump.cancel()
            gone.cancel()
            results = await asyncio.gather(pump, gone, return_exceptions=True)
            await _close(sent)
            await _close(stream)
        if isinstance(results[0], Exception):
            raise results[0]
        if cut or isinstance(results[0], asyncio.CancelledError):
            # An orderly end, so that a client that is still there knows that it can ask again.
            with contextlib.suppress(RuntimeError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end_streams(self) -> None:
        """End all streams that are being sent, and take no further request."""
        self._closing = True
        for pump in list(self._streams):
            pump.cancel()


def _writer(scope: Scope) -> Write | None:
    """Writes a chunk of the answer past ASGI, where that is served by our own protocol.

    A stream has no length, so that it is chunked (RFC 9112 §7.1).
    """
    connection = scope.get("state", {}).get(CONNECTION)
    if connection is None:
        return None
    transport, flow = connection.transport, connection.flow

    def write(chunk: bytes) -> bool:
        if flow.write_paused or transport.is_closing():
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        return True

    return write


class _Gone(Exception):
    """The client went away before it had sent its request."""


def _request(scope: Scope) -> Request:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        # Lists with commas between (RFC 9110 §5.3), but names of groups may have commas themselves.
        between = "\n" if key.startswith("impersonate-") else ", "
        headers[key] = f"{headers[key]}{between}{text}" if key in headers else text
    target = scope["raw_path"].decode("latin-1")
    if query := scope["query_string"]:
        target += "?" + query.decode("latin-1")
    certificate = scope.get("state", {}).get(CERTIFICATE)
    return Request(scope["method"], target, headers=headers, peer_certificate=certificate)


def _too_large() -> TooLarge:
    return TooLarge(f"Request entity too large: limit is {MAX_BODY}")


def _head(response: Response) -> Message:
    pairs = [
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in response.headers.items()
    ]
    return {"type": "http.response.start", "status": response.status, "headers": pairs}


async def _send_whole(request: Request, response: Response, send: Send) -> None:
    body = response.body
    if response.headers.get("content-type") == JSON and wire.wants_pretty(request):
        body = msgspec.json.format(body, indent=2)
    if len(body) > GZIP_FROM and wire.takes_gzip(request):
        # Compressing a megabyte takes milliseconds and releases the GIL.
        body = await asyncio.to_thread(gzip.compress, body, 1)
        response.headers["content-encoding"] = "gzip"
        response.headers["vary"] = "Accept-Encoding"
    if response.status not in (204, 304):
        response.headers["content-length"] = str(len(body))
    await send(_head(response))
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _pump(stream: AsyncIterator[bytes], bare: Send) -> None:
    async for chunk in stream:
        await bare({"type": "http.response.body", "body": chunk, "more_body": True})
    await bare({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _close(stream: AsyncIterator[bytes]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves signals to whoever runs the program and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave SIGINT and SIGTERM alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen. As uvicorn, but for the deadlines of TLS, which it has no words for."""
        loop, config = asyncio.get_running_loop(), self.config
        self.servers = [
            await loop.create_server(
                self._make_protocol,
                sock=bound,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=WRITE_S,
            )
            for bound in sockets or ()
        ]
        self.started = True
        self.listening.set()

    def _make_protocol(self) -> HttpProtocol:
        return HttpProtocol(self.config, self.server_state, {})


class HttpsFace:
    """A handler that is being served."""

    def __init__(self, app: AsgiApp, server: _Server, task: asyncio.Task[None], *, port: int) -> None:
        self.port = port
        self._app = app
        self._server = server
        self._task = task

    def reload(self, certfile: Path, keyfile: Path) -> None:
        """Serve another certificate to whoever connects from now on. Raises `OSError` and `ssl.SSLError`."""
        context = self._server.config.ssl
        if context is not None:
            context.load_cert_chain(certfile, keyfile)

    async def close(self, grace_s: float = 1.0) -> None:
        """Take no more requests, end all streams, give answers under way `grace_s`, then cut them off."""
        self._server.config.timeout_graceful_shutdown = max(1, round(grace_s))
        self._server.should_exit = True
        self._app.end_streams()
        done, _ = await asyncio.wait({self._task}, timeout=grace_s + 1)
        if not done:
            self._server.force_exit = True
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket. Raises `OSError`: the address is in use, not ours, or not to be had."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


async def serve_https(
    handler: Handler,
    *,
    host: str,
    port: int,
    certfile: Path,
    keyfile: Path,
    client_ca_file: Path | None,
    is_fair: bool = True,
) -> HttpsFace:
    """Serve `handler` over TLS; port 0 picks a free one. `is_fair`: tell clients that they need not limit
    themselves.

    Clients may show a certificate of `client_ca_file`'s CAs; one of another CA breaks the handshake. Raises
    `OSError` when the address cannot be had or a file cannot be read, `ssl.SSLError` when one is no good.
    """
    app = AsgiApp(handler, is_fair=is_fair)
    config = uvicorn.Config(
        app,
        http=HttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_certfile=certfile,
        ssl_keyfile=str(keyfile),
        ssl_ca_certs=str(client_ca_file) if client_ca_file is not None else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if client_ca_file is not None else ssl.CERT_NONE,
    )
    config.load()
    if config.ssl is not None:
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        config.ssl.set_alpn_protocols(["http/1.1"])
    bound = _bind(host, port)
    server = _Server(config)
    task = asyncio.get_running_loop().create_task(server.serve([bound]), name="https")
    waiting = asyncio.ensure_future(server.listening.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        bound.close()
        task.result()
    return HttpsFace(app, server, task, port=bound.getsockname()[1])
