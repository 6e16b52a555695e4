"""One DNS host in use: its connections, cached zones, pauses, and the edits that are sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from certwright.acme.solvers.contract import SolverError
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
from certwright.kube.util.caches import Lru, Recent

T = TypeVar("T")

_KEPT: Final = 64
_ZONES_REMEMBERED_S: Final = 600.0
_STATE_REMEMBERED_S: Final = 2.0
"""Challenges whose edits were sent together ask about the same change."""
_VERIFIED_FOR: Final = timedelta(minutes=10)
_ANSWERS_REMEMBERED_S: Final = 30.0
# Each conflict means that another client has succeeded.
_MOST_CONFLICTS: Final = 8


class _NoZone(Exception):
    """The account has no such zone."""


@dataclass(slots=True)
class Pause:
    """The last pause that an API has asked for; it may be over."""

    last: Throttled | None = None


class HostSession:
    """A host and what all challenges with its settings share. `zone`: the one that the manifest names; None:
    zones are looked up. `pause` is shared with sessions of the same account."""

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
        self._zones: Recent[str, HostedZone] = Recent(_ZONES_REMEMBERED_S, now=lambda: now().timestamp())
        self._states: Recent[str, bool] = Recent(_STATE_REMEMBERED_S, now=lambda: now().timestamp())
        # That a zone is missing is remembered for a shorter time, because users create it.
        self._lookups: Recent[str, HostedZone | None] = Recent(
            _ANSWERS_REMEMBERED_S, now=lambda: now().timestamp()
        )
        self._queues: dict[tuple[str, str], _Queue] = {}
        self._pause = pause or Pause()
        self._verdicts: Recent[str, SolverError | None] = Recent(
            _ANSWERS_REMEMBERED_S, now=lambda: now().timestamp()
        )
        self._verified_at: datetime | None = None

    async def edit(self, candidates: Sequence[str], edit: Edit) -> str:
        """Make an edit in the first of these zones that the account has. Returns the ID of the pending
        change; empty: there is none. Raises `SolverError`."""
        zone = await self.find_zone(candidates)
        try:
            return await self._queue(zone, edit.name).edit(zone, edit)
        except ZoneGone:
            self._zones.forget(zone.name)
            self._lookups.forget(zone.name)
            zone = await self.find_zone(candidates)
            return await self._queue(zone, edit.name).edit(zone, edit)

    async def find_zone(self, candidates: Sequence[str]) -> HostedZone:
        """The first of these zones that the account has. Raises `SolverError` if it has none."""
        if self.zone is not None:
            return self.zone
        for name in candidates:
            with suppress(_NoZone):
                return await self._zones.get(name, partial(self._find_zone, name))
        zone = min(candidates, key=len)
        raise SolverError(
            f"the account has no zone {zone}; create the zone, or use credentials of its account"
        )

    async def _find_zone(self, name: str) -> HostedZone:
        zone = await self._lookups.get(name, lambda: self._unless_paused(lambda: self.host.find_zone(name)))
        if zone is None:
            raise _NoZone
        return zone

    async def is_pending(self, change: str) -> bool:
        """See `DnsHost`."""
        return await self._states.get(change, partial(self._is_pending, change))

    async def _is_pending(self, change: str) -> bool:
        return await self._unless_paused(lambda: self.host.is_pending(change))

    async def verify(self) -> None:
        """Verify the credentials, unless they worked a short time ago. Raises `SolverError`."""
        at = self._verified_at
        if at is not None and self._now() - at < _VERIFIED_FOR:
            return
        if (error := await self._verdicts.get("", self._verdict)) is not None:
            raise error
        self._verified_at = self._now()

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
            self._verified_at = None
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
            session = HostSession(host, self._outside.now, settings.zone, self._pause_of(settings))
            self._sessions.put(settings, session)
        return session

    def _pause_of(self, settings: HostSettings) -> Pause:
        # Rate limits count the requests of an account, whichever zone the manifest names.
        account = replace(settings, zone=None)
        pause = self._pauses.get(account)
        if pause is None:
            pause = Pause()
            self._pauses.put(account, pause)
        return pause
