"""What all challenges with one set of credentials share: pauses, zones, and edits that are sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.contract import (
    CredentialsRejected,
    DnsHost,
    Edit,
    EditsConflict,
    EditsTogether,
    HostedZone,
    Outside,
    Throttled,
)
from certwright.acme.solvers.dns01.hosts.session import HostSession, HostSessions
from support.dns.outside import START, Time

ZONES = ("example.org",)


class Host(DnsHost):
    """Records what it is asked."""

    edits_together = EditsTogether(100)

    def __init__(self) -> None:
        self.calls: list[Sequence[Edit]] = []
        self.looked_up: list[str] = []
        self.errors: list[Exception] = []
        self.faulty = ""
        self.verified = 0
        self.rejection: SolverError | None = None

    async def find_zone(self, name: str) -> HostedZone | None:
        self.looked_up.append(name)
        return HostedZone(name, name) if name in ZONES else None

    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        self.calls.append(edits)
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        if any(edit.value == self.faulty for edit in edits):
            raise SolverError("refused")
        return "change"

    async def verify(self) -> None:
        self.verified += 1
        if self.rejection is not None:
            raise self.rejection


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def session(host: Host, time: Time) -> HostSession:
    return HostSession(host, lambda: time.now)


def add(name: str, value: str = "v") -> Edit:
    return Edit(name, value, adds=True)


async def test_concurrent_edits_are_sent_together(host: Host, session: HostSession) -> None:
    edits = [add(f"n{number}.example.org") for number in range(200)]
    changes = await asyncio.gather(*(session.edit(ZONES, edit) for edit in edits))
    assert set(changes) == {"change"}
    assert [len(call) for call in host.calls] == [100, 100]
    assert host.looked_up == ["example.org"]


async def test_edits_of_two_names_are_not_sent_together_if_the_host_takes_one(
    host: Host, session: HostSession
) -> None:
    host.edits_together = EditsTogether(100, of_one_name=True)
    edits = [add("a.example.org"), add("b.example.org"), add("B.example.org", "w")]
    await asyncio.gather(*(session.edit(ZONES, edit) for edit in edits))
    assert sorted(len(call) for call in host.calls) == [1, 2]


async def test_one_faulty_edit_does_not_fail_the_others(host: Host, session: HostSession) -> None:
    host.faulty = "bad"
    edits = [add("a.example.org"), add("b.example.org", "bad"), add("c.example.org")]
    results = await asyncio.gather(*(session.edit(ZONES, edit) for edit in edits), return_exceptions=True)
    assert [isinstance(result, SolverError) for result in results] == [False, True, False]


async def test_a_conflict_is_resolved_by_another_try(host: Host, session: HostSession) -> None:
    host.errors = [EditsConflict("changed"), EditsConflict("changed")]
    assert await session.edit(ZONES, add("a.example.org")) == "change"
    host.errors = [EditsConflict("changed")] * 20
    with pytest.raises(SolverError, match="8 times in a row"):
        await session.edit(ZONES, add("a.example.org"))


async def test_a_pause_is_kept_by_all(host: Host, session: HostSession, time: Time) -> None:
    until = START + timedelta(minutes=5)
    host.errors = [Throttled("rate limit", until)]
    edits = [add("a.example.org"), add("b.example.org")]
    results = await asyncio.gather(*(session.edit(ZONES, edit) for edit in edits), return_exceptions=True)
    assert [getattr(result, "not_before", None) for result in results] == [until, until]
    with pytest.raises(Throttled):
        await session.edit(ZONES, add("c.example.org"))
    assert len(host.calls) == 1
    time.now = until
    assert await session.edit(ZONES, add("c.example.org")) == "change"


@dataclass(frozen=True)
class ZoneSettings:
    """Settings of hosts that `hosts` collects."""

    hosts: list[Host] = field(compare=False)
    key: str = "k"
    zone: HostedZone | None = None

    def connect(self, outside: Outside) -> DnsHost:
        self.hosts.append(Host())
        return self.hosts[-1]


async def test_zones_of_one_account_share_a_pause(time: Time, outside: Outside) -> None:
    hosts: list[Host] = []
    sessions = HostSessions(outside)
    first = sessions.get(ZoneSettings(hosts, zone=HostedZone("", "z1")))
    second = sessions.get(ZoneSettings(hosts, zone=HostedZone("", "z2")))
    other = sessions.get(ZoneSettings(hosts, key="other", zone=HostedZone("", "z1")))
    hosts[0].errors.append(Throttled("rate limit", START + timedelta(seconds=5)))
    for session in (first, second):
        with pytest.raises(Throttled):
            await session.edit((), Edit("a.example.org", "v", True))
    assert [len(host.calls) for host in hosts] == [1, 0, 0]
    await other.edit((), Edit("a.example.org", "v", True))
    time.now += timedelta(seconds=5)
    await second.edit((), Edit("a.example.org", "v", True))


async def test_a_cancelled_caller_does_not_cancel_the_others(host: Host, session: HostSession) -> None:
    first = asyncio.create_task(session.edit(ZONES, add("a.example.org")))
    second = asyncio.create_task(session.edit(ZONES, add("b.example.org")))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "change"


async def test_a_zone_that_is_missing_is_looked_up_again_half_a_minute_later(
    host: Host, session: HostSession, time: Time
) -> None:
    for _ in range(2):
        for _ in range(2):
            with pytest.raises(SolverError, match=r"no zone new\.example"):
                await session.find_zone(("new.example",))
        time.now += timedelta(seconds=31)
    assert host.looked_up == ["new.example", "new.example"]


async def test_credentials_are_verified_once_in_ten_minutes_and_again_after_a_rejection(
    host: Host, session: HostSession, time: Time
) -> None:
    await asyncio.gather(*(session.verify() for _ in range(5)))
    time.now += timedelta(minutes=9)
    await session.verify()
    assert host.verified == 1
    host.rejection = CredentialsRejected("revoked")
    host.errors = [host.rejection]
    with pytest.raises(CredentialsRejected):
        await session.edit(ZONES, add("a.example.org"))
    for _ in range(2):
        with pytest.raises(CredentialsRejected):
            await session.verify()
    assert host.verified == 2
    host.rejection = None
    time.now += timedelta(seconds=31)
    await session.verify()
    assert host.verified == 3
