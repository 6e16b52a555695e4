"""PowerDNS: the real server, by its HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Outside
from certwright.acme.solvers.dns01.hosts.powerdns import PowerDnsSettings
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import OF_OTHERS, SHARED, ZONE, check_dns_host, session_of, solver_of, task
from support.dns.powerdns import KEY, PowerDnsServer, running_powerdns, served, set_records


@pytest.fixture(scope="module")
def server() -> Iterator[PowerDnsServer]:
    with running_powerdns([ZONE]) as running:
        yield running


@pytest.fixture
def settings(server: PowerDnsServer) -> PowerDnsSettings:
    return PowerDnsSettings(endpoint=Endpoint(server.url, ServerRules(allow_http=True)), key=KEY)


async def test_it_behaves_as_a_dns_host(server: PowerDnsServer, session: HostSession) -> None:
    await set_records(server, f"_acme-challenge.{SHARED}", [OF_OTHERS])

    async def see(name: str) -> set[str]:
        return served(server, name)

    # Before version 5 only one process may edit a name at a time.
    await check_dns_host(lambda: session, see)


async def test_a_disabled_record_stays_disabled(server: PowerDnsServer, session: HostSession) -> None:
    name = f"_acme-challenge.disabled.{ZONE}"
    await set_records(server, name, ["old"], disabled=True)
    dns_task = task(f"disabled.{ZONE}", "v")
    await solver_of(session).present(dns_task)
    assert served(server, name) == {dns_task.key}


async def test_two_hundred_names_take_one_change(server: PowerDnsServer, session: HostSession) -> None:
    tasks = [task(f"n{number}.{ZONE}", "v") for number in range(200)]
    await asyncio.gather(*(solver_of(session).present(dns_task) for dns_task in tasks))
    assert served(server, f"_acme-challenge.n199.{ZONE}") == {tasks[-1].key}
    await asyncio.gather(*(solver_of(session).clean_up(dns_task) for dns_task in tasks))
    assert served(server, f"_acme-challenge.n199.{ZONE}") == set()


async def test_a_wrong_key_is_named(settings: PowerDnsSettings, outside: Outside) -> None:
    with pytest.raises(CredentialsRejected) as caught:
        await session_of(replace(settings, key="wrong-key"), outside).verify()
    assert "wrong-key" not in str(caught.value)
