"""acme-dns, against a fake of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.acmedns import Account, AcmeDnsSettings
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Edit, Outside
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import ZONE, solver_of, task
from support.dns.acmedns import PASSWORD, USER, FakeAcmeDns
from support.dns.outside import START, Time


@pytest.fixture
async def fake() -> AsyncIterator[FakeAcmeDns]:
    host = FakeAcmeDns("sub-a", "sub-b")
    async with host.running():
        yield host


def session_of(fake: FakeAcmeDns, outside: Outside, password: str = PASSWORD) -> HostSession:
    accounts = tuple(
        (f"{label}.{ZONE}", Account(USER, password, f"sub-{label}.auth.test", f"sub-{label}"))
        for label in ("a", "b")
    )
    endpoint = Endpoint(fake.url, ServerRules(allow_http=True))
    settings = AcmeDnsSettings(endpoint=endpoint, accounts=accounts)
    return HostSession(settings.connect(outside), outside.now, settings.zone)


async def test_two_values_fit_and_a_third_waits_for_one_of_them(
    fake: FakeAcmeDns, outside: Outside, time: Time
) -> None:
    session = session_of(fake, outside)
    tasks = [task(f"a.{ZONE}", value) for value in ("one", "two", "three")]
    solvers = [solver_of(session) for _ in tasks]
    await solvers[0].present(tasks[0])
    await solvers[0].present(tasks[0])
    await solvers[1].present(tasks[1])
    with pytest.raises(SolverError, match="other challenges use them") as caught:
        await solvers[2].present(tasks[2])
    assert caught.value.not_before == START + timedelta(seconds=30)
    assert fake.kept["sub-a"] == [tasks[0].key, tasks[1].key]
    # Another account does not wait.
    await solver_of(session).present(task(f"b.{ZONE}", "v"))
    await solvers[0].clean_up(tasks[0])
    await solvers[2].present(tasks[2])
    assert fake.kept["sub-a"] == [tasks[1].key, tasks[2].key]
    assert fake.calls["POST /update"] == 4
    time.now += timedelta(hours=1)
    await solvers[0].present(tasks[0])


async def test_a_delegated_name_finds_its_account(fake: FakeAcmeDns, outside: Outside) -> None:
    await session_of(fake, outside).edit((), Edit("sub-b.auth.test", "x" * 43, adds=True))
    assert fake.kept["sub-b"] == ["x" * 43]


async def test_a_name_without_an_account_is_named(fake: FakeAcmeDns, outside: Outside) -> None:
    with pytest.raises(SolverError, match=r"no account for c\.example\.org"):
        await solver_of(session_of(fake, outside)).present(task(f"c.{ZONE}", "v"))
    assert not fake.calls


async def test_a_wrong_password_is_named_and_not_quoted(fake: FakeAcmeDns, outside: Outside) -> None:
    with pytest.raises(CredentialsRejected) as caught:
        await solver_of(session_of(fake, outside, "secret-words")).present(task(f"a.{ZONE}", "v"))
    assert "secret-words" not in str(caught.value)


async def test_cleaning_up_asks_nothing(fake: FakeAcmeDns, outside: Outside) -> None:
    await solver_of(session_of(fake, outside)).clean_up(task(f"a.{ZONE}", "v"))
    assert not fake.calls
