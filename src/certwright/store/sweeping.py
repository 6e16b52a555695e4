"""Rotation: a new data key, all rows sealed anew with it, the old key dropped. The same for every store.

It may be stopped at any point: the ring, which is written down before the first row and after the last one,
says whether it was finished, and the next start goes on.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from certwright.store.contract import Key, StoreError, Unavailable
from certwright.store.keyring import Ring, fingerprint
from certwright.store.seal import Seal

_log = logging.getLogger(__name__)

_RETRY_S = 10.0


class Swept(NamedTuple):
    """One page: where it ended (None: that was the last), how many rows it had, how many did not open."""

    place: Key | None
    rows: int
    unreadable: int


class Sweepable(Protocol):
    """What a store does for a rotation."""

    async def count_sealed(self) -> int:
        """About how many rows there are in the buckets that are sealed."""

    async def keep(self, ring: Ring) -> None:
        """Write a ring down, and use it. Raises `StoreError`."""

    async def sweep(self, after: Key | None) -> Swept:
        """Seal the next rows as they are to be; None: the first ones. Raises `StoreError`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How rows are sealed, and how far the work on it is.

    `wanted`: whether rows are sealed when they are written. `settled`: all of them are. `since`: when the
    data key was made, in seconds since 1970. `done` of `total` rows were looked at; `unreadable` of them do
    not open, and so the old keys are kept.
    """

    wanted: bool
    settled: bool
    since: int
    wrapped_by: str
    source: str
    done: int
    total: int
    unreadable: int


class Rotation:
    """Does the work in the background, one at a time."""

    def __init__(self, seal: Seal, store: Sweepable) -> None:
        self._seal = seal
        self._store = store
        self._done = self._total = self._unreadable = 0
        self._task: asyncio.Task[None] | None = None

    def progress(self) -> Progress:
        """How far it is."""
        ring, keys = self._seal.ring, self._seal.wrapping.load()
        return Progress(
            wanted=bool(ring.current),
            settled=ring.settled,
            since=ring.since,
            wrapped_by=fingerprint(keys[0]) if keys else "",
            source=self._seal.wrapping.source,
            done=self._done,
            total=self._total,
            unreadable=self._unreadable,
        )

    async def rotate(self) -> None:
        """Use a new data key from now on, and begin to seal the rows with it. Raises `StoreError`."""
        self._check_sealed()
        if self._running:
            raise Unavailable("the rows are being sealed anew already: see `certwright encryption status`")
        await self._store.keep(self._seal.turned())
        self.go_on()

    async def rewrap(self) -> None:
        """Wrap the data keys with a new wrapping key, and drop the old one. Raises `StoreError`."""
        self._check_sealed()
        wrapping = self._seal.wrapping
        wrapping.make()
        await self._store.keep(self._seal.ring)
        wrapping.keep_first()

    def _check_sealed(self) -> None:
        if not self._seal.ring.current:
            raise Unavailable("rows are not sealed: start the server without --encrypt-secrets=false")

    def go_on(self) -> None:
        """Finish what was begun, unless that is being done."""
        if not self._running and not self._seal.ring.settled:
            self._done = self._unreadable = 0
            self._task = asyncio.create_task(self._run(), name="sealing")

    async def finished(self) -> None:
        """Return when what was begun here is done, as far as that is possible."""
        if self._task is not None:
            await asyncio.shield(self._task)

    @property
    def _running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def _run(self) -> None:
        while True:
            try:
                await self._sweep()
            except StoreError as error:
                _log.warning("rows could not be sealed anew: %s; trying again", error)
            else:
                return
            await asyncio.sleep(_RETRY_S)

    async def _sweep(self) -> None:
        current = self._seal.ring.current
        self._done = self._unreadable = 0
        self._total = await self._store.count_sealed()
        place: Key | None = None
        while True:
            page = await self._store.sweep(place)
            self._done += page.rows
            self._unreadable += page.unreadable
            if (place := page.place) is None:
                break
        if current != self._seal.ring.current:
            raise Unavailable("another server has turned the data keys meanwhile")
        if not self._unreadable:
            await self._store.keep(self._seal.ring.done())

    async def close(self) -> None:
        """Stop; the next start goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@runtime_checkable
class Sealed(Protocol):
    """A store that can seal rows."""

    @property
    def rotation(self) -> Rotation | None:
        """The work on the seals; None where no row is sealed."""
