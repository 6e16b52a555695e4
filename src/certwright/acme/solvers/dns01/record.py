"""Name and zone of the TXT record of the DNS challenges."""

from __future__ import annotations

from certwright.acme.solvers.contract import SolverError, Task
from certwright.acme.solvers.names import LookupFailed, NameServers


async def resolved_record(task: Task, names: NameServers, *, follow: bool) -> str:
    """The name of the task's record; with `follow` the end of its chain of CNAME records, so that a zone can
    be delegated. Raises `SolverError`."""
    if not follow:
        return task.record
    try:
        return await names.alias_of(task.record)
    except LookupFailed as error:
        raise SolverError(f"the CNAME record of {task.record} cannot be followed: {error}") from error


async def zone_of(name: str, names: NameServers) -> str:
    """The zone of a name. Raises `SolverError`."""
    try:
        return await names.zone_of(name)
    except LookupFailed as error:
        raise SolverError(f"the zone of {name} cannot be found: {error}") from error
