"""Account keys, sessions and clients, as the tests of the protocol need them, what servers answer, and how to
read what is signed."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.exchange import Directory, Session
from certwright.acme.protocol.https import HttpTransport
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Response, TlsOptions
from certwright.pki import keys
from support.pebble import Pebble

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLACES = Directory("https://ca/dir", "https://ca/nonce", "https://ca/account", "https://ca/order")


def new_key(algorithm: str = "ECDSA", size: int = 0) -> AccountKey:
    return AccountKey(keys.generate(keys.KeyPlan.of(algorithm, size)))


def client_of(pebble: Pebble, key: AccountKey | None = None) -> AcmeClient:
    """A client without an account."""

    def now() -> datetime:
        return datetime.now(UTC)

    transport = HttpTransport(
        TlsOptions(pebble.ca_bundle), user_agent="certwright/test", now=now, timeout_s=200.0
    )
    return AcmeClient(pebble.directory, key or new_key(), transport, now=now)


def answer(status: int = 200, body: Any = None, **headers: str) -> Response:
    """An answer whose header names have `_` for `-`."""
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    content = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()
    return Response(status, fields, content, "https://ca/x", NOW)


def session(**options: Any) -> Session:
    """A session of a registered account."""
    return Session(**{"directory": PLACES, "key": new_key(), "kid": "https://ca/account/1", **options})


def opened(body: bytes) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
    """Protected header, payload and the whole of a signature."""
    document: dict[str, Any] = json.loads(body)
    return json.loads(unb64(document["protected"])), unb64(document["payload"]), document


def unb64(text: str) -> bytes:
    """The bytes of unpadded base64url."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
