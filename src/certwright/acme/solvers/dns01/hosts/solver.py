"""DNS-01 solver of a DNS host, and the check that waits for its changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from certwright.acme.solvers.contract import Check, NotYet, Ready, SolverError, Task
from certwright.acme.solvers.dns01.hosts.contract import Edit
from certwright.acme.solvers.dns01.hosts.session import HostSession
from certwright.acme.solvers.dns01.record import resolved_record
from certwright.acme.solvers.names import LookupFailed, NameServers

_POLL_PERIOD: Final = timedelta(seconds=4)


class HostedSolver:
    """Presents and removes values of one task by the API of a DNS host. `names` finds zones, and aliases if
    `follow`."""

    def __init__(self, session: HostSession, names: NameServers, *, follow: bool = False) -> None:
        self._session = session
        self._names = names
        self._follow = follow
        self._change = ""

    async def present(self, task: Task) -> None:
        """See `Solver`."""
        self._change = await self._edit(task, adds=True)

    async def clean_up(self, task: Task) -> None:
        """See `Solver`."""
        self._change = ""
        await self._edit(task, adds=False)

    async def verify(self) -> None:
        """See `Verifiable`."""
        await self._session.verify()

    async def verify_name(self, task: Task) -> str:
        """See `Verifiable`."""
        await self._session.verify()
        name = await resolved_record(task, self._names, follow=self._follow)
        try:
            zone = await self._session.find_zone(await self._candidates(name))
            if zone.name and not is_within(name, zone.name):
                raise SolverError(f"{name} is not in the zone {zone.name}, which the solver names")
            self._session.host.check_name(name)
            return zone.name
        except SolverError as error:
            if name == task.record:
                raise
            message = f"{error} ({task.record} is an alias of {name})"
            raise SolverError(message, not_before=error.not_before) from error

    async def _candidates(self, name: str) -> tuple[str, ...]:
        return () if self._session.zone is not None else await zone_candidates(name, self._names)

    async def _edit(self, task: Task, *, adds: bool) -> str:
        name = await resolved_record(task, self._names, follow=self._follow)
        return await self._session.edit(await self._candidates(name), Edit(name, task.key, adds))

    async def is_pending(self) -> bool:
        """Whether the host has not yet brought what was presented to all of its name servers. Raises
        `SolverError`."""
        if self._change and not await self._session.is_pending(self._change):
            self._change = ""
        return bool(self._change)


class AfterChange:
    """The self-check of a `HostedSolver`: asks the host first, so that no name server is queried, and caches
    no negative answer, while the change is pending. `check` None: only the host is asked."""

    def __init__(self, solver: HostedSolver, check: Check | None) -> None:
        self._solver = solver
        self._check = check

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        try:
            if await self._solver.is_pending():
                return NotYet("the DNS host has not yet brought the change to its name servers", _POLL_PERIOD)
        except SolverError as error:
            return NotYet(f"the state of the change is unknown: {error}", _POLL_PERIOD)
        return await self._check.check(task) if self._check is not None else Ready()


async def zone_candidates(name: str, names: NameServers) -> tuple[str, ...]:
    """The zones that may hold a name, the likeliest first.

    That is the zone by DNS. Then zones between it and the name, which are not delegated yet or are private.
    Where DNS has no answer, all names above with two labels or more.
    """
    labels = name.rstrip(".").lower().split(".")
    above = [".".join(labels[start:]) for start in range(len(labels) - 1)]
    try:
        zone = (await names.zone_of(name)).rstrip(".").lower()
    except LookupFailed:
        zone = ""
    if zone not in above:
        return tuple(above)
    return (zone, *above[: above.index(zone)])


def is_within(name: str, zone: str) -> bool:
    """Whether a name is that of the zone, or below it."""
    return f".{name}".lower().endswith(f".{zone}".lower())
