"""Each DNS provider's client against a fake of its API: the contract, and credentials that are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Outside
from conformance.check_dns_host import ZONE, check_dns_host, session_of
from support.dns.cases import CASES

FAKES = ("akamai", "azure", "private azure", "clouddns", "cloudflare", "digitalocean")


@pytest.mark.parametrize("name", FAKES)
async def test_it_behaves_as_a_dns_host(name: str, outside: Outside) -> None:
    async with CASES[name]() as case:

        async def see(record: str) -> set[str]:
            values = [value for zone in case.fake.zones.values() for value in zone.values(record)]
            assert len(values) == len(set(values)), "a value was added twice"
            return set(values)

        # An Akamai set has no version: only one process may edit a name at a time.
        shared = session_of(case.settings, outside) if name == "akamai" else None
        await check_dns_host(lambda: shared or session_of(case.settings, outside), see)
        if name.endswith("azure"):
            fake: Any = case.fake
            assert fake.sets[ZONE, "_acme-challenge.shared"][1]["metadata"] == {"owner": "others"}


WRONG = {
    "akamai": ({"client_token"}, {"access_token"}, {"client_secret"}),
    "cloudflare": ({"token"},),
    "digitalocean": ({"token"},),
}
WORDS = {"cloudflare": "Invalid access token", "digitalocean": "Unable to authenticate you"}


@pytest.mark.parametrize(("name", "fields"), [(name, fields) for name in WRONG for fields in WRONG[name]])
async def test_wrong_credentials_are_named_and_not_quoted(
    name: str, fields: set[str], outside: Outside
) -> None:
    async with CASES[name]() as case:
        settings: Any = case.settings
        wrong = replace(settings, **dict.fromkeys(fields, "wrong-value"))
        with pytest.raises(CredentialsRejected, match=WORDS.get(name)) as caught:
            await session_of(wrong, outside).verify()
    assert "wrong-value" not in str(caught.value)
