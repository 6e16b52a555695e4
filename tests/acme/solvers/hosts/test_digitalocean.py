"""DigitalOcean, against a fake of its API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web

from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Outside, Throttled
from certwright.acme.solvers.dns01.hosts.digitalocean import DigitalOceanSettings
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import OF_OTHERS, SHARED, ZONE, check_dns_host, session_of, solver_of, task
from support.dns.digitalocean import TOKEN, FakeDigitalOcean
from support.dns.outside import START


@pytest.fixture
async def fake() -> AsyncIterator[FakeDigitalOcean]:
    host = FakeDigitalOcean(ZONE)
    host.zones[ZONE].records[f"_acme-challenge.{SHARED}"] = {"1000": OF_OTHERS}
    async with host.running():
        yield host


@pytest.fixture
def settings(fake: FakeDigitalOcean) -> DigitalOceanSettings:
    return DigitalOceanSettings(
        token=TOKEN, endpoint=Endpoint(f"{fake.url}/v2", ServerRules(allow_http=True))
    )


async def test_it_behaves_as_a_dns_host(
    fake: FakeDigitalOcean, settings: DigitalOceanSettings, outside: Outside
) -> None:
    async def see(name: str) -> set[str]:
        values = [value for zone in fake.zones.values() for value in zone.values(name)]
        assert len(values) == len(set(values)), "a value was added twice"
        return set(values)

    await check_dns_host(lambda: session_of(settings, outside), see)


async def test_zone_lookups_do_not_grow(fake: FakeDigitalOcean, session: HostSession) -> None:
    for number in range(20):
        await solver_of(session).present(task(f"n{number}.{ZONE}", "v"))
    assert fake.calls["GET /v2/domains/{zone}"] == 1


async def test_records_on_later_pages_are_found(fake: FakeDigitalOcean, session: HostSession) -> None:
    fake.page = 2
    dns_task = task(f"pages.{ZONE}", "ours")
    others = {str(number): f"value-{number}" for number in range(100, 105)}
    fake.zones[ZONE].records[f"_acme-challenge.pages.{ZONE}"] = {**others, "7": dns_task.key}
    await solver_of(session).clean_up(dns_task)
    assert fake.values(f"_acme-challenge.pages.{ZONE}") == set(others.values())


async def test_a_rate_limit_is_kept_to(fake: FakeDigitalOcean, session: HostSession) -> None:
    body = {"id": "too_many_requests", "message": "API Rate limit exceeded."}
    fake.planned.append(web.json_response(body, status=429, headers={"retry-after": "90"}))
    for _ in range(3):
        with pytest.raises(Throttled, match="Rate limit exceeded") as caught:
            await solver_of(session).present(task(f"a.{ZONE}", "v"))
        assert caught.value.not_before == START + timedelta(seconds=90)
    assert fake.calls.total() == 1


async def test_a_wrong_token_is_named(settings: DigitalOceanSettings, outside: Outside) -> None:
    with pytest.raises(CredentialsRejected, match="Unable to authenticate you"):
        await session_of(replace(settings, token="wrong"), outside).verify()
