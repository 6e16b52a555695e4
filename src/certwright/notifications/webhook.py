"""Webhooks: a digest as JSON, by one POST over HTTPS. Redirects are not followed."""

from __future__ import annotations

import json
import ssl
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from certwright.kube.util.connections import proxy_for
from certwright.notifications.messages import Digest, SendError
from certwright.notifications.settings import WebhookSettings, check_url, read_secret

_TIMEOUT_S = 30.0
_LONGEST_ANSWER = 64 * 1024


class LimitedAnswer:
    """The file that a server's answers are read from; more than 64 KiB of them are an `OSError`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _LONGEST_ANSWER

    def readline(self, limit: int = -1) -> bytes:
        """The next line."""
        line = self._file.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise OSError(f"the answer is longer than {_LONGEST_ANSWER} bytes")
        return line

    def flush(self) -> None:
        """Nothing, because it is only read."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def send(settings: WebhookSettings, digest: Digest) -> None:
    """Post the digest; blocks, for 30 s without an answer at most. Raises `SendError`, which names the host
    and not the path of the URL, because that may be a secret."""
    import http.client  # Most servers never call a webhook.

    try:
        url = settings.url or read_secret(settings.url_file or "")
        check_url(url, "url")
        headers = {"Content-Type": "application/json", "User-Agent": "certwright"}
        if settings.token_file is not None:
            headers["Authorization"] = f"Bearer {read_secret(settings.token_file)}"
    except ValueError as error:
        raise SendError(f"the webhook cannot be used: {error}") from error
    host = urlsplit(url).hostname or ""
    try:
        status = _post(url, settings.ca_file, json.dumps(digest.content()).encode(), headers)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SendError(f"the webhook at {host}: {str(error) or type(error).__name__}") from error
    if not 200 <= status < 300:
        raise SendError(f"the webhook at {host} answers {status}")


def _post(url: str, ca_file: str | None, body: bytes, headers: dict[str, str]) -> int:
    import http.client  # see `send`

    parts = urlsplit(url)

    class Response(http.client.HTTPResponse):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            # `HTTPResponse` itself skips any number of interim answers (RFC 9110 §15.2).
            self.fp: Any = LimitedAnswer(self.fp)

    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    host, port = parts.hostname or "", parts.port or 443
    if proxy := proxy_for(f"{parts.scheme}://{parts.netloc}"):
        through = urlsplit(proxy)
        connection = http.client.HTTPSConnection(
            through.hostname or "", through.port or 3128, timeout=_TIMEOUT_S, context=context
        )
        connection.set_tunnel(host, port)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
    connection.response_class = Response
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()
