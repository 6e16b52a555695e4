"""A Pebble for all tests of the protocol, and a client with an account at it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from acme.protocol.clients import client_of
from certwright.acme.protocol import account
from certwright.acme.protocol.client import AcmeClient
from support.pebble import Pebble, running_pebble


@pytest.fixture(scope="package")
def pebble() -> Iterator[Pebble]:
    """One that offers alternate chains, and refuses a tenth of the nonces: five in a row, which
    end a request, are then one in 100,000."""
    environment = {"PEBBLE_WFE_NONCEREJECT": "10", "PEBBLE_ALTERNATE_ROOTS": "2", "PEBBLE_CHAIN_LENGTH": "2"}
    with running_pebble(environment=environment) as running:
        yield running


@pytest.fixture
async def client(pebble: Pebble) -> AsyncIterator[AcmeClient]:
    """A client with an account of its own."""
    made = client_of(pebble)
    await made.run(account.register, ["mailto:admin@example.org"])
    yield made
    await made.close()
