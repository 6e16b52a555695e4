"""Akamai Edge DNS, against a fake that checks each signature."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from certwright.acme.solvers.dns01.hosts.akamai import AkamaiSettings
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import OF_OTHERS, SHARED, ZONE, check_dns_host, session_of
from support.dns.akamai import ACCESS_TOKEN, CLIENT_SECRET, CLIENT_TOKEN, FakeAkamai


@pytest.fixture
async def fake() -> AsyncIterator[FakeAkamai]:
    host = FakeAkamai(ZONE)
    host.zones[ZONE].records[f"_acme-challenge.{SHARED}"] = {"0": OF_OTHERS}
    async with host.running():
        yield host


@pytest.fixture
def settings(fake: FakeAkamai) -> AkamaiSettings:
    return AkamaiSettings(
        endpoint=Endpoint(fake.url, ServerRules(allow_http=True)),
        client_token=CLIENT_TOKEN,
        access_token=ACCESS_TOKEN,
        client_secret=CLIENT_SECRET,
    )


async def test_it_behaves_as_a_dns_host(fake: FakeAkamai, session: HostSession) -> None:
    # A set has no version: only one process may edit a name at a time.
    await check_dns_host(lambda: session, fake.values)


WRONG: dict[str, Callable[[AkamaiSettings], AkamaiSettings]] = {
    "client token": lambda right: replace(right, client_token="wrong-value"),
    "access token": lambda right: replace(right, access_token="wrong-value"),
    "client secret": lambda right: replace(right, client_secret="wrong-value"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_wrong_credentials_are_named_and_not_quoted(
    wrong: str, settings: AkamaiSettings, outside: Outside
) -> None:
    with pytest.raises(CredentialsRejected) as caught:
        await session_of(WRONG[wrong](settings), outside).verify()
    assert "wrong-value" not in str(caught.value)
