"""What a ServiceAccount's token says of itself. Nothing is verified: this is the client's own token.

Source: RFC 7519 §4.1 (`sub`, `exp`, `iat`); Kubernetes documentation, "Managing Service Accounts".
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

import msgspec

from certwright.kube.util.decoders import json_decoder


class Claims(msgspec.Struct, frozen=True):
    """The claims that matter to the bearer; times in seconds since 1970, None if the token has none."""

    sub: str = ""
    exp: float | None = None
    iat: float | None = None

    @property
    def account(self) -> tuple[str, str]:
        """Namespace and name of the ServiceAccount; empty for another subject."""
        words = self.sub.split(":")
        is_account = len(words) == 4 and words[:2] == ["system", "serviceaccount"]
        return (words[2], words[3]) if is_account else ("", "")

    @property
    def end(self) -> datetime | None:
        """When the token expires; None if it never does."""
        try:
            return None if self.exp is None else datetime.fromtimestamp(self.exp, UTC)
        except (OverflowError, ValueError, OSError):
            return None

    def ends_soon(self, now: datetime, *, within_s: float) -> bool:
        """Whether the token expires within that time, and within a quarter of its life."""
        if self.exp is None:
            return False
        life_s = self.exp - self.iat if self.iat is not None else within_s
        return self.exp - now.timestamp() < min(within_s, life_s / 4)


def claims_of(token: str) -> Claims:
    """The claims of a JSON web token; none for a token of another form."""
    parts = token.split(".")
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return json_decoder(Claims).decode(payload)
    except (IndexError, binascii.Error, ValueError, msgspec.MsgspecError, RecursionError):
        return Claims()
