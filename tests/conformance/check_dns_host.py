"""What every DNS host must do, whichever it is: see `acme/solvers/dns01/hosts/contract.py`.

`make` connects to the host as another process does, with empty caches; `see` returns the values that are
served at a name. The account has the zone `example.org`, with the value `of-others` at
`_acme-challenge.shared.example.org`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from certwright.acme.solvers.contract import Task
from certwright.acme.solvers.dns01.hosts.contract import HostSettings, Outside
from certwright.acme.solvers.dns01.hosts.session import HostedSolver, HostSession
from certwright.acme.solvers.names import LookupFailed, NameServers
from conformance.check_solver import check_solver

ZONE = "example.org"
SHARED = f"shared.{ZONE}"
OF_OTHERS = "of-others"
Make = Callable[[], HostSession]
See = Callable[[str], Awaitable[set[str]] | set[str]]


class Delegations(NameServers):
    """DNS in which only these zones exist, and no aliases."""

    def __init__(self, *zones: str) -> None:
        super().__init__()
        self.zones = zones or (ZONE,)

    async def zone_of(self, name: str) -> str:
        """See `NameServers`."""
        for zone in sorted(self.zones, key=len, reverse=True):
            if f".{name}".endswith(f".{zone}"):
                return zone
        raise LookupFailed(f"no zone was found that {name} lies in")

    async def alias_of(self, name: str) -> str:
        """See `NameServers`."""
        return name


def session_of(settings: HostSettings, outside: Outside) -> HostSession:
    """A session with empty caches."""
    return HostSession(settings.connect(outside), outside.now, settings.zone)


def solver_of(session: HostSession) -> HostedSolver:
    """A solver of one challenge."""
    return HostedSolver(session, Delegations())


def task(name: str, value: str) -> Task:
    """A task whose TXT value has the 43 characters of a real one."""
    return Task(type="dns-01", identifier=name, token=value, key=value.ljust(43, "x"), uid=f"{name}/{value}")


async def check_dns_host(make: Make, see: See) -> None:
    """Raises `AssertionError` where the host breaks the contract."""

    async def see_task(dns_task: Task) -> set[str]:
        seen = see(f"_acme-challenge.{dns_task.identifier}")
        return seen if isinstance(seen, set) else await seen

    await check_solver(solver_of(make()), see_task, task(f"a.{ZONE}", "value"))
    await _keeps_what_others_wrote(make, see_task)
    await _bears_a_crash(make, see_task)
    await _takes_a_wildcard_beside_its_apex(make, see_task)
    await _bears_concurrency(make, see_task)
    await _finds_its_zones_only(make)


async def _keeps_what_others_wrote(make: Make, see: Callable[[Task], Awaitable[set[str]]]) -> None:
    ours = task(SHARED, "ours")
    assert await see(ours) == {OF_OTHERS}
    solver = solver_of(make())
    await solver.present(ours)
    assert await see(ours) == {OF_OTHERS, ours.key}
    await solver.clean_up(ours)
    assert await see(ours) == {OF_OTHERS}


async def _bears_a_crash(make: Make, see: Callable[[Task], Awaitable[set[str]]]) -> None:
    dns_task = task(f"crash.{ZONE}", "before")
    await solver_of(make()).present(dns_task)
    await solver_of(make()).present(dns_task)
    assert await see(dns_task) == {dns_task.key}
    await solver_of(make()).clean_up(dns_task)
    assert await see(dns_task) == set()
    await solver_of(make()).clean_up(dns_task)


async def _takes_a_wildcard_beside_its_apex(make: Make, see: Callable[[Task], Awaitable[set[str]]]) -> None:
    # Two challenges at one name, in two processes: each must leave the other's value alone.
    apex, wildcard = task(f"w.{ZONE}", "apex"), task(f"w.{ZONE}", "wildcard")
    first, second = solver_of(make()), solver_of(make())
    await asyncio.gather(first.present(apex), second.present(wildcard))
    assert await see(apex) == {apex.key, wildcard.key}
    await asyncio.gather(first.clean_up(apex), second.clean_up(wildcard))
    assert await see(apex) == set()


async def _bears_concurrency(make: Make, see: Callable[[Task], Awaitable[set[str]]]) -> None:
    session = make()
    tasks = [task(f"n{number}.{ZONE}", "v") for number in range(20)]
    tasks += [task(f"many.{ZONE}", f"v{number}") for number in range(5)]
    solvers = [solver_of(session) for _ in tasks]
    await asyncio.gather(*(solver.present(dns_task) for solver, dns_task in zip(solvers, tasks, strict=True)))
    assert [dns_task.key in await see(dns_task) for dns_task in tasks] == [True] * len(tasks)
    assert len(await see(tasks[-1])) == 5
    await asyncio.gather(
        *(solver.clean_up(dns_task) for solver, dns_task in zip(solvers, tasks, strict=True))
    )
    assert [await see(dns_task) for dns_task in tasks] == [set()] * len(tasks)


async def _finds_its_zones_only(make: Make) -> None:
    host = make().host
    await host.verify()
    zone = await host.find_zone(ZONE)
    assert zone is not None
    assert zone.name == ZONE
    assert await host.find_zone("elsewhere.example") is None
