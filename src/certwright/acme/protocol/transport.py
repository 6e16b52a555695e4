"""Transport contract for ACME requests, and its TLS options."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Protocol

from certwright.acme.protocol.messages import Request, Response


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
