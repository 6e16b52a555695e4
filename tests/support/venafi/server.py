"""The fake's HTTP server, on loopback over TLS."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import trustme

from support.venafi import saas, tpp
from support.venafi.state import API_KEY, State


@dataclass
class FakeVenafi:
    """A running server. `url` is TPP's and SaaS's, `ngts_url` that of NGTS."""

    url: str
    ca_pem: bytes
    state: State = field(default_factory=State)

    @property
    def ngts_url(self) -> str:
        """The base URL of NGTS, which has a path."""
        return f"{self.url}/ngts"

    @property
    def token_url(self) -> str:
        """The token endpoint of NGTS."""
        return f"{self.url}/oauth2/access_token"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    state: State


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        self._handle(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def _handle(self, content: bytes) -> None:
        state, path = self.server.state, self.path.partition("?")[0].strip("/")
        state.calls[f"{self.command} {'/'.join(path.split('/')[:3])}"] += 1
        state.calls["all"] += 1
        if path in state.answers:
            status, headers, body = state.answers[path]
            self._reply(status, headers, body)
            return
        status, response = self._answer(state, path, content)
        if isinstance(response, str):
            self._reply(status, {"Content-Type": "text/plain"}, response.encode())
        else:
            self._reply(status, {"Content-Type": "application/json"}, json.dumps(response).encode())

    def _answer(self, state: State, path: str, content: bytes) -> tuple[int, Any]:
        authorization = self.headers.get("authorization") or ""
        if path.endswith("oauth2/access_token"):
            return saas.log_in(state, authorization, content)
        body = json.loads(content) if content else {}
        token = authorization.removeprefix("Bearer ")
        if path.lower().startswith(("vedauth/", "vedsdk/")):
            return tpp.answer(state, path, token, body)
        is_ngts = path.startswith("ngts/")
        is_allowed = state.is_valid(token) if is_ngts else self.headers.get("tppl-api-key") == API_KEY
        if not is_allowed:
            return 401, {"errors": [{"code": 1, "message": "invalid credentials", "args": []}]}
        return saas.answer(state, self.command, path.removeprefix("ngts/"), body, is_ngts=is_ngts)

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def fake_venafi() -> Iterator[FakeVenafi]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    fake = FakeVenafi(f"https://127.0.0.1:{server.server_address[1]}", authority.cert_pem.bytes())
    server.state = fake.state
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
