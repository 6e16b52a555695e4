"""Cloudflare, against a fake of its API."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import web

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.cloudflare import CloudflareSettings
from certwright.acme.solvers.dns01.hosts.contract import Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from conformance.check_dns_host import ZONE, session_of, solver_of, task
from support.dns.cloudflare import EMAIL, KEY, FakeCloudflare

PROVIDER = "cloudflare"


async def test_a_global_key_works_too(
    fake: FakeCloudflare, settings: CloudflareSettings, outside: Outside
) -> None:
    settings = replace(settings, token="", email=EMAIL, key=KEY)
    await solver_of(session_of(settings, outside)).present(task(f"a.{ZONE}", "v"))
    assert fake.values(f"_acme-challenge.a.{ZONE}")


async def test_one_request_adds_and_one_removes(fake: FakeCloudflare, session: HostSession) -> None:
    for number in range(20):
        solver, dns_task = solver_of(session), task(f"n{number}.{ZONE}", "v")
        await solver.present(dns_task)
        await solver.clean_up(dns_task)
    records = "/zones/{zone}/dns_records"
    assert fake.calls == {"GET /zones": 1, f"POST {records}": 20, f"DELETE {records}/{{record}}": 20}


async def test_a_record_on_the_second_page_is_removed(fake: FakeCloudflare, session: HostSession) -> None:
    fake.page = 2
    dns_task = task(f"pages.{ZONE}", "last")
    there = {f"r{number}": f"value-{number}" for number in range(5)}
    fake.zones[ZONE].records[f"_acme-challenge.pages.{ZONE}"] = {**there, "ours": dns_task.key}
    await solver_of(session).clean_up(dns_task)
    assert fake.values(f"_acme-challenge.pages.{ZONE}") == set(there.values())


async def test_a_zone_that_was_made_again_is_found_again(fake: FakeCloudflare, session: HostSession) -> None:
    await solver_of(session).present(task(f"a.{ZONE}", "v"))
    fake.zones[ZONE].id = "another"
    await solver_of(session).present(task(f"b.{ZONE}", "v"))
    assert fake.values(f"_acme-challenge.b.{ZONE}")


async def test_an_endless_answer_is_not_read(fake: FakeCloudflare, session: HostSession) -> None:
    fake.planned.append(web.Response(status=200, body=b"[" * 5_000_000))
    with pytest.raises(SolverError, match="more than 4 MiB"):
        await session.find_zone((ZONE,))
