"""Webhook client: the one module of the API server that opens connections, and only to configured webhooks.

Source: Kubernetes documentation, "Dynamic Admission Control", contacting the webhook.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from certwright.kube.apiserver.model.definitions import WebhookTarget
from certwright.kube.util.connections import load_pair, unverified_tls
from certwright.kube.util.http_messages import Response

if TYPE_CHECKING:
    import aiohttp

MAX_ANSWER = 4 * 1024 * 1024
"""Maximum bytes of a response."""
_MAX_CONTEXTS = 256

Resolve = Callable[[str, str], Awaitable[str]]
"""From namespace and name of a Service to the host behind it. Raises `CallFailed`."""

_WORDS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing "
    "the request",
}
_VERIFY_MESSAGES = {
    10: "certificate has expired or is not yet valid",
    18: "certificate signed by unknown authority",
    19: "certificate signed by unknown authority",
    20: "certificate signed by unknown authority",
    21: "certificate signed by unknown authority",
}


class CallFailed(Exception):
    """The call failed, or the webhook did not answer with 2xx. The text gives the cause."""


class WebhookClient:
    """Posts to webhooks over keep-alive connections."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[tuple[str, bool, bytes], ssl.SSLContext] = {}

    async def post(self, target: WebhookTarget, body: bytes, *, timeout_s: int) -> bytes:
        """The body of the response. Raises `CallFailed`."""
        shown = f"{target.url}{'&' if '?' in target.url else '?'}timeout={timeout_s}s"
        headers = [("content-type", "application/json"), ("accept", "application/json")]
        answer = await self.send(target, "POST", shown, headers=headers, body=body, timeout_s=timeout_s)
        if not 200 <= answer.status < 300:
            raise CallFailed(_of_status(answer.status, answer.body))
        return answer.body

    async def send(
        self,
        target: WebhookTarget,
        method: str,
        url: str,
        *,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: int,
        pair_pem: bytes = b"",
    ) -> Response:
        """The response of any status to a request; names of its headers are lower-case. `url` is shown in
        errors. `pair_pem`: a client certificate with its key; empty: none. Raises `CallFailed`."""
        # The HTTP and TLS library is loaded at first use, because a server without webhooks never needs it.
        import aiohttp

        message, parts, address, added = f'{method.capitalize()} "{url}"', urlsplit(url), url, []
        try:
            if parts.scheme != "https" or not parts.hostname:
                raise CallFailed("a webhook is called by https only")
            async with asyncio.timeout(timeout_s):
                if target.service is not None:
                    host = await self._resolve(*target.service)
                    # Connect to the host behind the Service, but use the Service's name for TLS: its
                    # certificate has that name.
                    address = urlunsplit((parts.scheme, f"{host}:{target.port}", parts.path, parts.query, ""))
                    added = [("host", parts.netloc)]
                async with self._opened().request(
                    method,
                    address,
                    data=body,
                    headers=[*headers, *added],
                    ssl=self._context(target, pair_pem),
                    server_hostname=parts.hostname,
                    allow_redirects=False,
                ) as response:
                    fields = {name.lower(): value for name, value in response.headers.items()}
                    if fields.get("content-encoding", "identity") != "identity":
                        raise CallFailed("the answer is compressed")
                    content = bytearray()
                    async for piece in response.content.iter_chunked(65536):
                        content += piece
                        if len(content) > MAX_ANSWER:
                            raise CallFailed(f"the answer is larger than {MAX_ANSWER} bytes")
                    return Response(response.status, fields, bytes(content))
        except TimeoutError:
            raise CallFailed(f"{message}: context deadline exceeded") from None
        except CallFailed as error:
            raise CallFailed(f"{message}: {error}") from None
        except aiohttp.ClientError as error:
            raise CallFailed(f"{message}: {_go_message(error)}") from None
        except (OSError, ValueError) as error:
            raise CallFailed(f"{message}: {error}") from None

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp  # see `send`

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"user-agent": "certwright-admission", "accept-encoding": "identity"},
                # A small compressed answer can be unpacked to any size.
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _context(self, target: WebhookTarget, pair_pem: bytes) -> ssl.SSLContext:
        """The TLS context that trusts its CAs (empty: the system's). Raises `ValueError`."""
        key = target.ca_pem, target.skip_verify, pair_pem
        context = self._contexts.get(key)
        if context is None:
            try:
                # Without the system's CAs where none is verified, because reading them takes time.
                context = (
                    unverified_tls()
                    if target.skip_verify
                    else ssl.create_default_context(cadata=target.ca_pem or None)
                )
            except ssl.SSLError as error:
                raise ValueError(f"unable to load root certificates: {error.reason or error}") from None
            if pair_pem:
                load_pair(context, pair_pem, "client certificate of the front proxy")
            if len(self._contexts) >= _MAX_CONTEXTS:
                self._contexts.clear()
            self._contexts[key] = context
        return context

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


def _go_message(error: Exception) -> str:
    """The error in the words of Go's client."""
    import aiohttp  # see `send`

    match error:
        case aiohttp.ClientConnectorCertificateError():
            cause, text = error.certificate_error, str(error.certificate_error)
            if isinstance(cause, ssl.SSLCertVerificationError):
                text = _VERIFY_MESSAGES.get(cause.verify_code, cause.verify_message)
            return f"tls: failed to verify certificate: x509: {text}"
        case aiohttp.ClientConnectorSSLError():
            return f"tls: {error.os_error.strerror or error.os_error}"
        case aiohttp.ClientConnectorDNSError():
            return f"dial tcp: lookup {error.host}: no such host"
        case aiohttp.ClientConnectorError():
            what = "connection refused" if error.os_error.errno == errno.ECONNREFUSED else error.strerror
            return f"dial tcp {error.host}:{error.port}: connect: {what}"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return "EOF"
    return str(error) or type(error).__name__


def _of_status(code: int, body: bytes) -> str:
    if code in _WORDS:
        return _WORDS[code]
    shown = body[:2048].decode(errors="replace").strip().replace('"', '\\"') or "unknown"
    if code >= 500:
        return f'an error on the server ("{shown}") has prevented the request from succeeding'
    if code in (403, 406, 415):
        return shown
    return f"the server responded with the status code {code} but did not return more information"
