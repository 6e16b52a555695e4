"""Account keys and clients, as the tests of the protocol need them, and how to read what they sign."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.transport import TlsOptions
from certwright.pki import keys
from support.pebble import Pebble


def new_key(algorithm: str = "ECDSA", size: int = 0) -> AccountKey:
    """An account key."""
    return AccountKey(keys.generate(keys.KeyPlan.of(algorithm, size)))


def client_of(pebble: Pebble, key: AccountKey | None = None) -> AcmeClient:
    """A client without an account."""

    def now() -> datetime:
        return datetime.now(UTC)

    transport = HttpTransport(TlsOptions(pebble.ca_bundle), user_agent="certwright/test", now=now)
    return AcmeClient(pebble.directory, key or new_key(), transport, now=now)


def opened(body: bytes) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
    """Protected header, payload and the whole of a signature."""
    whole: dict[str, Any] = json.loads(body)
    return json.loads(unb64(whole["protected"])), unb64(whole["payload"]), whole


def unb64(text: str) -> bytes:
    """The bytes of unpadded base64url."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
