"""The worlds that ACME tests run in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from controllers.acme.fake_world import FakeWorld, fake_world
from support.pebble import Pebble, running_pebble


@pytest.fixture
async def bare() -> AsyncIterator[FakeWorld]:
    """A certwright at a fake CA, without an issuer."""
    async with fake_world() as made:
        yield made


@pytest.fixture
async def fake(bare: FakeWorld) -> FakeWorld:
    """A certwright at a fake CA, with the issuer `acme`."""
    await bare.issuer()
    return bare


@pytest.fixture(scope="package")
def pebble() -> Iterator[Pebble]:
    """One that offers alternate chains, and refuses a tenth of the nonces."""
    environment = {"PEBBLE_WFE_NONCEREJECT": "10", "PEBBLE_ALTERNATE_ROOTS": "2"}
    with running_pebble(environment=environment) as running:
        yield running
