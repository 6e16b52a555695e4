"""Account keys and clients, as the tests of the protocol need them."""

from __future__ import annotations

from datetime import UTC, datetime

from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.transport import HttpTransport, TlsOptions
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
