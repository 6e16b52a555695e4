"""DigitalOcean, against a fake of its API."""

from __future__ import annotations

from datetime import timedelta

import pytest
from aiohttp import web

from certwright.acme.solvers.dns01.hosts.contract import Throttled
from certwright.acme.solvers.dns01.hosts.session import HostSession
from conformance.check_dns_host import ZONE, solver_of, task
from support.dns.digitalocean import FakeDigitalOcean
from support.dns.outside import START

PROVIDER = "digitalocean"


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
