"""Key rotation for every store: make a new data key, re-seal all rows with it, drop the old key.

It may be stopped at any point: the ring, which is stored before the first row and after the last one, records
whether the rotation was finished, and the next start continues it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from certwright.kube.store.contract import Key, StoreError, Unavailable
from certwright.kube.store.envelope import Seal
from certwright.kube.store.keyring import Ring, fingerprint

_log = logging.getLogger(__name__)

_RETRY_S = 10.0


class Swept(NamedTuple):
    """One swept page: where it ended (None: the last page), its number of rows, how many did not open."""

    place: Key | None
    rows: int
    unreadable: int


class Sweepable(Protocol):
    """The operations of a store that a rotation needs."""

    async def count_sealed(self, after: Key | None) -> tuple[int, int]:
        """The number of rows in the sealed buckets, and how many of them follow `after` (None: all of them),
        at one moment. Raises `StoreError`."""

    async def keep(self, ring: Ring) -> None:
        """Store a ring, and use it. Raises `StoreError`."""

    async def sweep(self, after: Key | None) -> Swept:
        """Re-seal the next rows with the current key; None: the first ones. Raises `StoreError`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """State of encryption, and progress of a rotation.

    `wanted`: whether rows are sealed when they are written. `settled`: all rows are as `wanted` says.
    `since`: when the data key was made, in seconds since 1970. `done` of the `total` rows that exist at this
    moment are sealed as wanted, by the rotation or by another write; `unreadable` rows do not open, and so
    the old keys are kept. `warning`: why the store is not as the server's flag says; empty if it is.
    """

    wanted: bool
    settled: bool
    since: int
    wrapped_by: str
    source: str
    done: int
    total: int
    unreadable: int
    warning: str


class Rotation:
    """Runs rotations in the background, one at a time."""

    def __init__(self, seal: Seal, store: Sweepable) -> None:
        self._seal = seal
        self._store = store
        self._place: Key | None = None
        self._swept = False
        self.unreadable = 0
        """The number of rows that did not open, of those swept so far."""
        self._task: asyncio.Task[None] | None = None

    @property
    def settled(self) -> bool:
        """Whether all rows are sealed as wanted."""
        return self._seal.ring.settled

    @property
    def warning(self) -> str:
        """Why the store is not as the server's flag says; empty if it is."""
        return self._seal.warning

    async def progress(self) -> Progress:
        """The progress, counted now. Raises `StoreError`."""
        total, left = await self._store.count_sealed(self._place)
        ring, keys = self._seal.ring, self._seal.wrapping.load()
        unreadable = self.unreadable
        if ring.settled or self._swept:
            left = 0
        return Progress(
            wanted=bool(ring.current),
            settled=ring.settled,
            since=ring.since,
            wrapped_by=fingerprint(keys[0]) if keys else "",
            source=self._seal.wrapping.source,
            done=max(total - left - unreadable, 0),
            total=total,
            unreadable=unreadable,
            warning=self.warning,
        )

    async def rotate(self) -> None:
        """Use a new data key from now on, and start to re-seal the rows with it. Raises `StoreError`."""
        self._check_sealed()
        self._check_idle()
        await self._store.keep(self._seal.rotated())
        _log.info("the data key was replaced; the rows are re-encrypted")
        self.go_on()

    async def decrypt(self) -> None:
        """Seal nothing from now on, and start to decrypt the rows. Raises `StoreError`."""
        self._check_sealed()
        if self._seal.enabled:
            raise Unavailable("start all servers of the store with --encrypt-secrets=false first")
        self._check_idle()
        await self._store.keep(self._seal.rotated(sealed=False))
        _log.warning("encryption was switched off; the rows are decrypted")
        self.go_on()

    async def rewrap(self) -> None:
        """Wrap the data keys with a new wrapping key, and drop the old one. Raises `StoreError`."""
        self._check_sealed()
        wrapping = self._seal.wrapping
        wrapping.make()
        await self._store.keep(self._seal.ring)
        wrapping.keep_first()
        _log.info("the key that encrypts the data keys was replaced: %s", wrapping.source)

    def _check_sealed(self) -> None:
        if not self._seal.ring.current:
            raise Unavailable("rows are not encrypted: start the server without --encrypt-secrets=false")

    def _check_idle(self) -> None:
        if self._running:
            raise Unavailable("the rows are being re-encrypted already: see `certwright encryption status`")

    def go_on(self) -> None:
        """Continue an unfinished rotation, unless it is already running."""
        if not self._running and not self._seal.ring.settled:
            self._begin()
            self._task = asyncio.create_task(self._run(), name="sealing")

    async def finished(self) -> None:
        """Return when the rotation started here is finished, as far as that is possible."""
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
                _log.warning("rows could not be re-encrypted: %s; trying again", error)
            else:
                return
            await asyncio.sleep(_RETRY_S)

    async def _sweep(self) -> None:
        current = self._seal.ring.current
        self._begin()
        while not self._swept:
            page = await self._store.sweep(self._place)
            self.unreadable += page.unreadable
            self._place, self._swept = page.place, page.place is None
        if current != self._seal.ring.current:
            raise Unavailable("another server has rotated the data keys in the meantime")
        if not self.unreadable:
            await self._store.keep(self._seal.ring.done())
            if current:
                _log.info("all rows are encrypted as configured, and the former data key is removed")
            else:
                _log.warning("all rows are decrypted, and the former data key is removed")

    def _begin(self) -> None:
        self._place, self._swept, self.unreadable = None, False, 0

    async def close(self) -> None:
        """Stop; the next start continues."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@runtime_checkable
class Sealed(Protocol):
    """A store that can seal rows."""

    @property
    def rotation(self) -> Rotation | None:
        """The rotation; None if no row is sealed."""
