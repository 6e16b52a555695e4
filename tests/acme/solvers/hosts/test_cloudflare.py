"""Cloudflare, against a fake of its API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.cloudflare import CloudflareSettings
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import OF_OTHERS, SHARED, ZONE, check_dns_host, session_of, solver_of, task
from support.dns.cloudflare import EMAIL, KEY, TOKEN, FakeCloudflare


@pytest.fixture
async def fake() -> AsyncIterator[FakeCloudflare]:
    host = FakeCloudflare(ZONE)
    host.zones[ZONE].records[f"_acme-challenge.{SHARED}"] = {"other": OF_OTHERS}
    async with host.running():
        yield host


@pytest.fixture
def settings(fake: FakeCloudflare) -> CloudflareSettings:
    return CloudflareSettings(token=TOKEN, endpoint=Endpoint(fake.url, ServerRules(allow_http=True)))


async def test_it_behaves_as_a_dns_host(
    fake: FakeCloudflare, settings: CloudflareSettings, outside: Outside
) -> None:
    await check_dns_host(lambda: session_of(settings, outside), fake.values)


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


async def test_a_wrong_token_is_named(settings: CloudflareSettings, outside: Outside) -> None:
    session = session_of(replace(settings, token="wrong"), outside)
    with pytest.raises(CredentialsRejected, match="Invalid access token") as caught:
        await session.verify()
    assert "wrong" not in str(caught.value).replace("the credentials are wrong", "")


async def test_a_zone_of_another_account_is_named(session: HostSession) -> None:
    with pytest.raises(SolverError, match=r"the account has no zone elsewhere\.example"):
        await session.find_zone(("elsewhere.example",))


async def test_a_zone_that_was_made_again_is_found_again(fake: FakeCloudflare, session: HostSession) -> None:
    await solver_of(session).present(task(f"a.{ZONE}", "v"))
    fake.zones[ZONE].id = "another"
    await solver_of(session).present(task(f"b.{ZONE}", "v"))
    assert fake.values(f"_acme-challenge.b.{ZONE}")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web.Response(status=500, text="<html>oops"), "status 500"),
        (web.Response(status=200, text="<html>hello", content_type="text/html"), "not answer as documented"),
        (web.Response(status=200, body=b"[" * 5_000_000), "more than 4 MiB"),
        (web.Response(status=302, headers={"location": "http://localhost:1/"}), "redirect"),
    ],
    ids=["500", "HTML", "endless", "redirect"],
)
async def test_what_cannot_be_understood_is_one_sentence(
    answer: web.Response, words: str, fake: FakeCloudflare, session: HostSession
) -> None:
    fake.planned.append(answer)
    with pytest.raises(SolverError, match=words) as caught:
        await session.find_zone((ZONE,))
    assert "\n" not in str(caught.value)
    assert "<html>" not in str(caught.value)
