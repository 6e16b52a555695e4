"""Challenges that do not depend on a DNS provider."""

from __future__ import annotations

from typing import Final

from certwright.cli.importing.model import Challenge

LISTENER: Final = Challenge(
    solver={"http01": {"ingress": {}}},
    note="HTTP-01 by certwright's listener: start the server with --http01-listen :80",
)
TLS_LISTENER: Final = Challenge(
    solver={"tlsALPN01": {}},
    note="TLS-ALPN-01 by certwright's listener: start the server with --tlsalpn01-listen :443",
)


def webroot(path: str) -> Challenge:
    """HTTP-01 by files below that folder."""
    return Challenge(
        solver={"http01": {"webroot": {"path": path}}},
        note=f"HTTP-01 by files: start the server with --webroot {path}",
    )


def parse_solver(text: str) -> Challenge:
    """The value of `--solver`. Raises `ValueError` with a sentence."""
    match text.partition("="):
        case ("http01", "", ""):
            return LISTENER
        case ("tls-alpn01", "", ""):
            return TLS_LISTENER
        case ("webroot", "=", path) if path.startswith("/"):
            return webroot(path)
        case _:
            raise ValueError(f"{text!r} is not a solver; write http01, tls-alpn01 or webroot=/DIR")
