"""How requests get to the server: the contract, and whom to trust there."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Protocol

from certwright.acme.protocol.messages import Request, Response


class Transport(Protocol):
    """Sends one request. MUST raise `Unreachable` (or `Untrusted`) where no whole answer comes."""

    async def send(self, request: Request) -> Response:
        """The answer, whatever its status; redirects are followed for GET and HEAD only."""

    async def close(self) -> None:
        """Let go of the connections."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Whom to trust: the system's CAs, those of `ca_bundle` (PEM) as well, or anybody."""

    ca_bundle: bytes = b""
    skip_verify: bool = field(default=False, kw_only=True)

    def context(self) -> ssl.SSLContext:
        """Raises `ValueError` with a sentence for a bundle that holds no certificates."""
        context = ssl.create_default_context()
        self._add_bundle(context)
        if self.skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def check(self) -> None:
        """Raises `ValueError` where `context` would; it takes a fraction of the time."""
        self._add_bundle(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _add_bundle(self, context: ssl.SSLContext) -> None:
        if not self.ca_bundle:
            return
        try:
            context.load_verify_locations(cadata=self.ca_bundle.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError):
            raise ValueError("the CA bundle holds no certificates in PEM form") from None
