"""ACME requests and responses as plain values, and the flows that exchange them.

A *flow* is a generator: it yields a `Request`, or an `Unsigned` request for the driver to sign, receives the
`Response`, and returns its result. A flow does no I/O, reads no clock and never waits, so its driver controls
every wait, retry and error.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from certwright.kit.outgoing import parse_retry_after

T = TypeVar("T")


class Action(StrEnum):
    """The purpose of a request, in the words of the directory (RFC 8555 §7.1.1) where it has one."""

    DIRECTORY = "directory"
    NEW_NONCE = "newNonce"
    NEW_ACCOUNT = "newAccount"
    ACCOUNT = "account"
    NEW_ORDER = "newOrder"
    ORDER = "order"
    ORDERS = "orders"
    AUTHORIZATION = "authorization"
    CHALLENGE = "challenge"
    FINALIZE = "finalize"
    CERTIFICATE = "certificate"
    REVOKE_CERT = "revokeCert"
    RENEWAL_INFO = "renewalInfo"


class Request(msgspec.Struct, frozen=True):
    """An HTTP request. The media type of a body is always `application/jose+json` (RFC 8555 §6.2)."""

    action: Action
    method: str
    url: str
    body: bytes = b""
    accept: str = ""


class Unsigned(msgspec.Struct, frozen=True):
    """A POST whose body `sign` makes: up to a millisecond of CPU time, mostly without the GIL if
    `is_slow`."""

    action: Action
    url: str
    sign: Callable[[], bytes]
    is_slow: bool
    accept: str = ""

    def with_body(self, body: bytes) -> Request:
        """The request with the body that `sign` returned."""
        return Request(self.action, "POST", self.url, body, self.accept)


class Response(msgspec.Struct, frozen=True):
    """An HTTP response. Names of `headers` are in lower case; the seconds in `Retry-After` count from
    `received_at`, which the driver sets."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    url: str
    received_at: datetime

    def header(self, name: str) -> str:
        """The first header of that name (lower case), or the empty string."""
        for key, value in self.headers:
            if key == name:
                return value
        return ""

    def links(self, relation: str) -> list[str]:
        """The targets of the `Link` headers with that relation (RFC 8288 §3), in their order."""
        targets: list[str] = []
        # A comma may occur inside <…>, so links are split at "<", not at ",".
        for part in (part for name, value in self.headers if name == "link" for part in value.split("<")[1:]):
            target, _, parameters = part.partition(">")
            for parameter in parameters.split(";"):
                key, _, text = parameter.strip().rstrip(",").partition("=")
                if key.strip().lower() == "rel":
                    targets += [target for rel in text.strip().strip('"').split() if rel == relation]
        return targets

    @property
    def retry_after(self) -> datetime | None:
        """The moment that `Retry-After` names, as seconds or as a date (RFC 9110 §10.2.3); None if the header
        is missing or malformed. At most a year ahead."""
        return parse_retry_after(self.header("retry-after"), self.received_at)


Flow = Generator[Request | Unsigned, Response, T]
"""Yields requests, receives responses, returns a `T`. Raises the errors of `acme/protocol/errors.py`."""


class Transport(Protocol):
    """Sends one request. MUST raise `Unreachable` (or `Untrusted`) unless a complete response arrives."""

    async def send(self, request: Request) -> Response:
        """Return the response, whatever its status; follows redirects for GET and HEAD only."""

    async def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Trusted CAs: the system's, those of `ca_bundle` (PEM) as well, or no verification."""

    ca_bundle: bytes = b""
    skip_verify: bool = field(default=False, kw_only=True)

    def check(self) -> None:
        """Raises `ValueError` with a sentence for a bundle without certificates."""
        if not self.ca_bundle:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
                cadata=self.ca_bundle.decode("ascii")
            )
        except (ssl.SSLError, UnicodeDecodeError):
            raise ValueError("the CA bundle holds no certificates in PEM form") from None
