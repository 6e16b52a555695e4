"""The result of a revocation; apart, so that commands can name it without loading the ACME client."""

from __future__ import annotations

from dataclasses import dataclass


class CannotRevoke(Exception):
    """A certificate was not revoked; the text is one sentence with the fix."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """What has been revoked, and where: the serial number in hexadecimal, the server's directory."""

    serial: str
    server: str
