"""Rules for requests to servers that objects name: allowed URLs, redirects, and what an error may quote.

Every client of such a server (an ACME directory, a webhook, a DNS provider's API) follows these rules, and so
does the admission of an object with a URL. A tenant may have written the object, and the server may be an
internal server, so no error may show the server's answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, Protocol
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from certwright.kube.util.encoding import one_line

ALLOW_HTTP_FLAG: Final = "--allow-http-servers"
MOST_REDIRECTS: Final = 5
_LONGEST_QUOTE: Final = 500
_LONGEST_URL: Final = 200
_SCHEMES: Final = ("https", "http")


class BadUrl(ValueError):
    """The text is not a URL of a server; the message is a clause with the reason."""


class NotAllowed(Exception):
    """The rules forbid this request; the message is one sentence with the fix."""


class ServerError(Exception):
    """No usable answer of a server; the message is one sentence that quotes nothing of the server's."""


class ServerUnreachable(ServerError):
    """No complete answer arrived, and the request may have had no effect: retry later."""


class ServerUntrusted(ServerUnreachable):
    """The server's TLS certificate is not trusted, has expired, or is for another name."""


class ServerUnusable(ServerError):
    """The rules forbid the request, or the answer is not one (too large, an endless redirect)."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """A complete answer, whatever its status. Names of headers are in lower case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        """The first value of a header (its name in lower case); empty without one."""
        return next((value for header, value in self.headers if header == name), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """How to verify a server, and a client certificate for it (PEM).

    Trusted are the CAs of `ca_pem`; if it is empty, or `with_system_cas`, those of the system (as well).
    `server_name` replaces the URL's host in the verification.
    """

    ca_pem: bytes = b""
    with_system_cas: bool = False
    skip_verify: bool = False
    server_name: str = ""
    certificate_pem: bytes = b""
    key_pem: bytes = field(default=b"", repr=False)


class HttpClient(Protocol):
    """Sends requests to servers that objects name, by the rules of this module."""

    async def send(
        self, method: str, url: str, *, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
    ) -> HttpAnswer:
        """Send one request; redirects are followed for GET and HEAD only. Raises `ServerError`."""


class ServerRules(msgspec.Struct, frozen=True):
    """The operator's rules. `allow_http`: `http` beside `https` (`--allow-http-servers`)."""

    allow_http: bool = False

    def check(self, url: str) -> None:
        """Raises `NotAllowed` for a URL to which no request may be sent."""
        try:
            parts = parse_server_url(url)
        except BadUrl as error:
            raise NotAllowed(f'"{quote(url, _LONGEST_URL)}" {error}') from error
        if parts.scheme != "https" and not self.allow_http:
            shown = quote(url, _LONGEST_URL)
            raise NotAllowed(
                f'"{shown}" is not an https URL; write https://…, or start certwright with {ALLOW_HTTP_FLAG}'
            )

    def redirect(self, url: str, location: str) -> str:
        """The target URL of a redirect: the same host, and never from https to http.

        Raises `NotAllowed`; the message does not quote `location`, which is the server's own text.
        """
        refused = f"{quote(url, _LONGEST_URL)} redirects to another host, which is not followed"
        try:
            target = urljoin(url, location)
            before, after = parse_server_url(url), parse_server_url(target)
        except ValueError as error:
            raise NotAllowed(f"{refused}; name the server itself") from error
        if after.hostname != before.hostname:
            raise NotAllowed(f"{refused}; name the server itself")
        if after.scheme != "https" and (before.scheme == "https" or not self.allow_http):
            raise NotAllowed(f"{quote(url, _LONGEST_URL)} redirects to http, which is not followed")
        return target


HTTPS_ONLY: Final = ServerRules()


def parse_server_url(url: str) -> SplitResult:
    """The parts of an http or https URL of a server.

    Raises `BadUrl`: another scheme (e.g. `file:`), no host, control characters or spaces (a CR LF would
    begin another header), a user name or password, a fragment.
    """
    if not url.isprintable() or " " in url:
        raise BadUrl("contains a control character or a space")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadUrl("is not a URL; write https://HOST/…") from error
    if parts.scheme.lower() not in _SCHEMES or not parts.hostname:
        raise BadUrl("is not a URL of a server; write https://HOST/…")
    if "@" in parts.netloc:
        raise BadUrl("contains a user name or a password; a URL in an object is no place for them")
    if parts.fragment or url.endswith("#"):
        raise BadUrl("contains a fragment (#…), which no server sees; leave it out")
    return parts


def quote(text: str, most: int = _LONGEST_QUOTE) -> str:
    """A server's text made safe for a message: one line, no control or direction characters, at most `most`
    characters."""
    # Cut first: a text may be megabytes long, and cleaning never lengthens it.
    line = one_line(text[: 4 * most])
    return line if len(line) <= most else f"{line[: most - 1]}…"


def place_of(url: str) -> str:
    """A URL for messages: without query and fragment, which may contain text of the server."""
    try:
        parts = urlsplit(url)
        return quote(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}", _LONGEST_URL)
    except ValueError:
        return "a URL that cannot be read"


# A longer one is nonsense.
_LONGEST_WAIT: Final = timedelta(days=365)


def parse_retry_after(text: str, received_at: datetime) -> datetime | None:
    """The moment that a `Retry-After` header names, as seconds or as a date (RFC 9110 §10.2.3); None if it is
    missing or malformed. At most a year ahead."""
    text = text.strip()
    if not text:
        return None
    latest = received_at + _LONGEST_WAIT
    if text.isascii() and text.isdigit():
        return received_at + timedelta(seconds=int(text)) if len(text) < 9 else latest
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return min(moment if moment.tzinfo else moment.replace(tzinfo=UTC), latest)
