"""Log-outs, for all servers of one store: a ConfigMap lists the sessions that have ended before their time.

A request costs no call of the API: each server follows the ConfigMap. Only a log-out writes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from certwright.dashboard.sessions import Sessions
from certwright.diagnosis import related
from certwright.kube.api import errors
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.tasks import TaskSet

NAMESPACE: Final = "kube-system"
NAME: Final = "certwright-dashboard-log-outs"
_MOST: Final = 1_000
_MOST_OF_ONE: Final = 20
"""Sessions of one user: who logs in and out all the time displaces the log-outs of no other user."""
_PATIENCE_S: Final = 2.0
_log = logging.getLogger(__name__)


class LogOuts:
    """Follows and writes the ConfigMap `NAME`: its keys are digests of user and session, its values the Unix
    times from which on the session is over in any case."""

    def __init__(self, client: Client, clock: Clock, sessions: Sessions) -> None:
        self._client = client
        self._clock = clock
        self._sessions = sessions
        self._entries: dict[str, float] = {}
        self._lock = asyncio.Lock()
        fields = f"metadata.name={NAME}"
        self._informer = Informer(client, related.CONFIG_MAPS, clock, namespace=NAMESPACE, fields=fields)
        self._informer.add_handler(self._read)
        self._tasks = TaskSet()
        self._tasks.start(self._informer.run(), name="dashboard: log-outs")

    async def wait_synced(self) -> None:
        """Return when the log-outs before the start of this server are known, or a moment has passed."""
        if not self._informer.synced.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._informer.synced.wait(), _PATIENCE_S)

    def _read(self, _: object, config_map: Mapping[str, Any] | None) -> None:
        data = (config_map or {}).get("data") or {}
        self._entries = {key: float(until) if until.isdecimal() else 0.0 for key, until in data.items()}
        self._sessions.add_ended({key.rpartition(".")[2]: until for key, until in self._entries.items()})

    async def record(self, digest: str, until: float, user: str) -> None:
        """End the session of that user on the other servers, too, with the next event of the ConfigMap; see
        `Sessions.end`. Where the ConfigMap cannot be written, the log says so."""
        whose = hashlib.sha256(user.encode()).hexdigest()[:16]
        async with self._lock:
            try:
                await self._write(whose, f"{whose}.{digest}", until)
            except (errors.ApiError, errors.Unreachable) as error:
                _log.warning("other servers do not know of a log-out from the dashboard: %s", error)

    async def _write(self, whose: str, key: str, until: float) -> None:
        now, present = self._clock.now().timestamp(), self._entries
        kept = sorted((key for key, end in present.items() if end > now), key=lambda key: present[key])
        own = [entry for entry in kept if entry.startswith(whose)]
        gone = {*own[: max(0, len(own) + 1 - _MOST_OF_ONE)], *kept[: max(0, len(kept) + 1 - _MOST)]}
        removed = dict.fromkeys((present.keys() - kept) | gone)
        data = {key: str(int(until) + 1)}
        patch = {"data": removed | data}
        try:
            written = await self._client.patch(related.CONFIG_MAPS, NAME, NAMESPACE, patch)
        except errors.NotFound:
            made = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data}
            try:
                written = await self._client.create(related.CONFIG_MAPS, made)
            except errors.AlreadyExists:
                written = await self._client.patch(related.CONFIG_MAPS, NAME, NAMESPACE, patch)
        # The next write displaces by what this one has written.
        self._informer.put(written)

    async def close(self) -> None:
        """Follow no longer."""
        await self._tasks.close()
