"""One DNS host in use: its connections, cached zones, pauses, and its queue of edits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from certwright.acme.solvers.contract import Check, NotYet, Ready, SolverError, Task
from certwright.acme.solvers.dns01.hosts.contract import (
    CredentialsRejected,
    DnsHost,
    Edit,
    EditsConflict,
    HostedZone,
    HostSettings,
    NotPermitted,
    Outside,
    Throttled,
    ZoneGone,
)
from certwright.acme.solvers.names import LookupFailed, NameServers, resolved_record
from certwright.kube.util.caches import Lru, Recent

T = TypeVar("T")

_KEPT: Final = 64
_ZONES_REMEMBERED_S: Final = 600.0
_STATE_REMEMBERED_S: Final = 2.0
"""Challenges whose edits were sent together ask about the same change."""
_VERIFIED_FOR_S: Final = 600.0
_FAILURES_REMEMBERED_S: Final = 30.0
# Each conflict means that another client has succeeded.
_MOST_CONFLICTS: Final = 8
_POLL_PERIOD: Final = timedelta(seconds=4)


@dataclass(slots=True)
class Pause:
    """The last pause that an API has asked for; it may be over."""

    last: Throttled | None = None


class HostSession:
    """A host, shared by all challenges with its settings. `zone`: the zone in the manifest; None: zones are
    looked up. `pause` is shared with sessions of the same account."""

    def __init__(
        self,
        host: DnsHost,
        now: Callable[[], datetime],
        zone: HostedZone | None = None,
        pause: Pause | None = None,
    ) -> None:
        self.host = host
        self._now = now
        self.zone = zone
        # Failures are remembered for a shorter time, because users create the zone, or correct the Secret.
        self._zones: Recent[str, HostedZone | None] = Recent(
            lambda zone: _ZONES_REMEMBERED_S if zone is not None else _FAILURES_REMEMBERED_S,
            now=lambda: now().timestamp(),
        )
        self._verdicts: Recent[str, SolverError | None] = Recent(
            lambda error: _VERIFIED_FOR_S if error is None else _FAILURES_REMEMBERED_S,
            now=lambda: now().timestamp(),
        )
        self._states: Recent[str, bool] = Recent(_STATE_REMEMBERED_S, now=lambda: now().timestamp())
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._pause = pause or Pause()

    async def edit(self, candidates: Sequence[str], edit: Edit) -> str:
        """Make an edit in the first of these zones that the account has. Returns the ID of the pending
        change; empty: there is none. Raises `SolverError`."""
        zone = await self.find_zone(candidates)
        try:
            return await self._queue(zone, edit.name).edit(zone, edit)
        except ZoneGone:
            self._zones.forget(zone.name)
            zone = await self.find_zone(candidates)
            return await self._queue(zone, edit.name).edit(zone, edit)

    async def find_zone(self, candidates: Sequence[str]) -> HostedZone:
        """The first of these zones in the account. Raises `SolverError` without one."""
        if self.zone is not None:
            return self.zone
        for name in candidates:
            find = partial(self._unless_paused, partial(self.host.find_zone, name))
            if (zone := await self._zones.get(name, find)) is not None:
                return zone
        missing = min(candidates, key=len)
        raise SolverError(
            f"the account has no zone {missing}; create the zone, or use credentials of its account"
        )

    async def is_pending(self, change: str) -> bool:
        ask = partial(self._unless_paused, partial(self.host.is_pending, change))
        return await self._states.get(change, ask)

    async def verify(self) -> None:
        """Verify the credentials, unless they worked a short time ago. Raises `SolverError`."""
        if (error := await self._verdicts.get("", self._verdict)) is not None:
            raise error

    async def _verdict(self) -> SolverError | None:
        try:
            await self._unless_paused(self.host.verify)
        except NotPermitted:
            return None
        except SolverError as error:
            return error
        return None

    async def _unless_paused(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call, unless the API has asked for a pause that is not over."""
        last = self._pause.last
        if last is not None and self._now() < last.until:
            raise Throttled(str(last), last.until)
        try:
            return await call()
        except Throttled as error:
            self._pause.last = error
            raise
        except CredentialsRejected:
            self._verdicts.forget("")
            raise

    def _queue(self, zone: HostedZone, name: str) -> _Queue:
        key = (zone.id, name.lower() if self.host.edits_together.of_one_name else "")
        queue = self._queues.get(key)
        if queue is None:

            async def apply(zone: HostedZone, edits: Sequence[Edit]) -> str:
                return await self._unless_paused(lambda: self.host.apply(zone, edits))

            queue = _Queue(apply, self.host.edits_together.most, lambda: self._queues.pop(key, None))
            self._queues[key] = queue
        return queue


class _Queue:
    """Edits that must not overlap: while a call is under way, later edits wait, and the next call takes them
    all. `emptied` is called when no edit is left."""

    def __init__(
        self,
        apply: Callable[[HostedZone, Sequence[Edit]], Awaitable[str]],
        most: int,
        emptied: Callable[[], object],
    ) -> None:
        self._apply = apply
        self._most = most
        self._emptied = emptied
        self._waiting: list[tuple[Edit, asyncio.Future[str]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def edit(self, zone: HostedZone, edit: Edit) -> str:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((edit, done))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all(zone))
        return await done

    async def _send_all(self, zone: HostedZone) -> None:
        try:
            while self._waiting:
                # Edits that begin in this turn of the event loop belong to this call.
                await asyncio.sleep(0)
                now, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._send([entry for entry in now if not entry[1].done()], zone)
        finally:
            self._sender = None
            for _, done in self._waiting:
                done.cancel()
            self._emptied()

    async def _send(self, edits: list[tuple[Edit, asyncio.Future[str]]], zone: HostedZone) -> None:
        if not edits:
            return None  # Their callers were cancelled.
        try:
            change = await self._without_conflict(zone, [edit for edit, _ in edits])
        except (Throttled, ZoneGone) as error:
            _fail(edits, error)
        except SolverError as error:
            if len(edits) == 1:
                return _fail(edits, error)
            # One of them may be to blame.
            for entry in edits:
                await self._send([entry], zone)
        except Exception as error:
            _fail(edits, error)
        else:
            for _, done in edits:
                if not done.done():
                    done.set_result(change)

    async def _without_conflict(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        for _ in range(_MOST_CONFLICTS):
            try:
                return await self._apply(zone, edits)
            except EditsConflict as error:
                conflict = error
        raise SolverError(f"{conflict} ({_MOST_CONFLICTS} times in a row)")


def _fail(edits: list[tuple[Edit, asyncio.Future[str]]], error: Exception) -> None:
    for _, done in edits:
        if not done.done():
            done.set_exception(error)


class HostSessions:
    """The sessions of this process, by the settings of their hosts; the least recently used are closed."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._sessions: Lru[HostSettings, HostSession] = Lru(_KEPT)
        self._pauses: Lru[HostSettings, Pause] = Lru(_KEPT)

    def get(self, settings: HostSettings) -> HostSession:
        """The session of these settings. Raises `SolverError` for settings that cannot work."""
        session = self._sessions.get(settings)
        if session is None:
            host = settings.connect(self._outside)
            # Rate limits count the requests of an account, whichever zone the manifest names.
            account = replace(settings, zone=None)
            pause = self._pauses.get(account)
            if pause is None:
                pause = Pause()
                self._pauses.put(account, pause)
            session = HostSession(host, self._outside.now, settings.zone, pause)
            self._sessions.put(settings, session)
        return session


class HostedSolver:
    """Presents and removes values of one task by the API of a DNS host. `names` finds zones, and aliases if
    `follow`."""

    def __init__(self, session: HostSession, names: NameServers, *, follow: bool = False) -> None:
        self._session = session
        self._names = names
        self._follow = follow
        self._change = ""

    async def present(self, task: Task) -> None:
        self._change = await self._edit(task, adds=True)

    async def clean_up(self, task: Task) -> None:
        self._change = ""
        await self._edit(task, adds=False)

    async def verify(self) -> None:
        await self._session.verify()

    async def verify_name(self, task: Task) -> str:
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
        try:
            if await self._solver.is_pending():
                return NotYet("the DNS host has not yet brought the change to its name servers", _POLL_PERIOD)
        except SolverError as error:
            return NotYet(f"the state of the change is unknown: {error}", _POLL_PERIOD)
        return await self._check.check(task) if self._check is not None else Ready()


async def zone_candidates(name: str, names: NameServers) -> tuple[str, ...]:
    """The zones that may hold a name, the likeliest first: the zone by DNS, then zones between it and the
    name, which are not delegated yet or are private. Without an answer of DNS: all parent names of two labels
    or more."""
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
    """Whether a name is the zone's, or below it."""
    return f".{name}".lower().endswith(f".{zone}".lower())
