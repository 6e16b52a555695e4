"""Watch on one Lease: its changes as they happen, without polling.

A watch that the server refuses, ends soon or never answers is opened again after a pause that doubles. The
caller also reads the Lease now and then, so it only becomes slower.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from datetime import timedelta
from typing import Any, TypeVar

from certwright.kube.api.codec import DecodeError
from certwright.kube.api.core import LEASES, Lease
from certwright.kube.api.errors import ApiError, Forbidden, Unreachable
from certwright.kube.client.rest import Client
from certwright.kube.client.watch import DELETED
from certwright.kube.util.clock import Clock
from certwright.kube.util.durations import doubled

_log = logging.getLogger(__name__)

# As client-go, 5 to 10 minutes, so that a connection that died silently is noticed.
_WATCH_S = 300
# For the server to end the watch itself.
_GRACE_S = 30.0
# A watch that ended sooner has failed.
_SOON_S = 30.0
_FIRST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(minutes=2)


class LeaseWatch:
    """Follows the Lease `namespace`/`name`, from the resourceVersion that `revision` returns (empty: from its
    present state), and calls `on_change` with each new state; None: the Lease was deleted. `jitter` returns
    numbers from 0 to 1."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        revision: Callable[[], str],
        on_change: Callable[[Lease | None], None],
        jitter: Callable[[], float],
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._revision = revision
        self._on_change = on_change
        self._jitter = jitter
        self._failures = 0
        self._is_refused = False

    async def run(self) -> None:
        """Follow the Lease until cancelled."""
        while True:
            if await self._succeeds():
                self._failures = 0
                continue
            self._failures += 1
            pause = doubled(_FIRST_PAUSE, self._failures, cap=_LONGEST_PAUSE)
            await self._clock.sleep(pause.total_seconds() * (0.5 + 0.5 * self._jitter()))

    async def _succeeds(self) -> bool:
        """Whether a watch lasted for its time."""
        opened = self._clock.monotonic()
        life_s = int(_WATCH_S * (1 + self._jitter()))
        try:
            await within(self._clock, life_s + _GRACE_S, self._read(life_s, opened))
        except (ApiError, Unreachable, DecodeError) as error:
            self._log(error)
            return False
        return self._clock.monotonic() - opened >= _SOON_S

    async def _read(self, life_s: int, opened: float) -> None:
        batches = self._client.watch(
            LEASES,
            self._namespace,
            resource_version=self._revision(),
            fields=f"metadata.name={self._name}",
            bookmarks=False,
            timeout_s=life_s,
        )
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    self._on_change(None if event.type == DELETED else event.object)
                if self._clock.monotonic() - opened >= _SOON_S:
                    self._failures = 0

    def _log(self, error: Exception) -> None:
        if isinstance(error, Forbidden) and not self._is_refused:
            self._is_refused = True
            _log.info(
                "the lease %s/%s cannot be watched, so that a replica that ends is replaced some seconds "
                "later; add the verb watch to the role for leader election: %s",
                self._namespace,
                self._name,
                error,
            )
            return
        _log.debug("the watch on the lease %s/%s: %s", self._namespace, self._name, error)


T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, within the given seconds of that clock. Raises `Unreachable` afterwards."""
    task, alarm = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Unreachable(f"the API server did not answer within {seconds:.0f} s")
    finally:
        alarm.cancel()
        task.cancel()
