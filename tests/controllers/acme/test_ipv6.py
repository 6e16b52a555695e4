"""Where there is no IPv4 at all: our listeners are at ::1 only, and so are the names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from certwright.resources.table import CERTIFICATE_REQUESTS
from support.acme_world import AcmeWorld, acme_world
from support.bind import running_bind
from support.pebble import running_pebble
from support.real import has_ipv6

pytestmark = pytest.mark.asyncio(loop_scope="module")
_RECORDS = "six AAAA ::1\nother AAAA ::2"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[AcmeWorld]:
    """A world at ::1, with an issuer of each kind that dials."""
    if not has_ipv6():
        pytest.skip("this machine has no ::1")
    with (
        running_bind(records={"example.org": _RECORDS}) as bind,
        running_pebble(names=bind.address) as pebble,
    ):
        async with acme_world(pebble, bind=bind, listen_on="::1") as made:
            await made.issuer()
            await made.issuer("tls", solvers=[{"tlsALPN01": {}}])
            yield made


@pytest.mark.parametrize("issuer", ["acme", "tls"])
@pytest.mark.parametrize("content", [{"dnsNames": ["six.example.org"]}, {"ipAddresses": ["::1"]}])
async def test_a_certificate_is_issued(world: AcmeWorld, issuer: str, content: dict[str, Any]) -> None:
    name = f"{issuer}-{next(iter(content)).lower()}"
    await world.certificate(name, issuer=issuer, **content)
    leaf = (await world.chain_of(name))[0]
    assert (leaf.dns_names, leaf.ip_addresses) == (
        tuple(content.get("dnsNames", ())),
        tuple(content.get("ipAddresses", ())),
    )


@pytest.mark.parametrize(("issuer", "words"), [("acme", "http://[::2]:"), ("tls", "to [::2]:")])
async def test_an_address_where_nothing_listens_is_written_as_one(
    world: AcmeWorld, issuer: str, words: str
) -> None:
    await world.certificate(f"dead-{issuer}", issuer=issuer, ipAddresses=["::2"])
    await world.until(CERTIFICATE_REQUESTS, f"dead-{issuer}-1", lambda r: words in str(r.status.conditions))
