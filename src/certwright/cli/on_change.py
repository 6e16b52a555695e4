"""The command of `--on-change`: run once for each changed certificate after its files were replaced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec

from certwright.kit import logs
from certwright.kit.hooks import DEFAULT_TIMEOUT_S, HookError, run_hook
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.clock import Clock

_log = logging.getLogger(__name__)

# A certificate may change again immediately, e.g. a temporary one that the issued one replaces.
_DEBOUNCE_S = 0.25
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 300.0


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a certificate that were replaced; `mark_done` records the command's success on the
    disk."""

    key: ObjectKey
    folder: Path
    version: str
    mark_done: Callable[[], None]


class _Pending(msgspec.Struct, frozen=True):
    change: Change
    due: float
    failures: int = 0


class OnChange:
    """Runs the command, one run at a time. A failed run is logged, and repeated with exponential backoff.

    What has succeeded is on the disk, so that a restart repeats only what has not. After a crash between the
    command's end and that record it runs again.
    """

    def __init__(self, command: str, clock: Clock, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._command = command
        self._clock = clock
        self._timeout_s = timeout_s
        self._pending: dict[ObjectKey, _Pending] = {}
        self._woken = asyncio.Event()
        self._ran = asyncio.Event()

    def add(self, change: Change) -> None:
        """Run the command for this change soon, unless it is pending already for the same version."""
        known = self._pending.get(change.key)
        if known is None or known.change.version != change.version:
            self._pending[change.key] = _Pending(change, self._clock.monotonic() + _DEBOUNCE_S)
            self._woken.set()

    async def run(self) -> None:
        """Run the command whenever it is due, for ever."""
        while True:
            self._woken.clear()
            if not self._pending:
                await self._woken.wait()
                continue
            pending = min(self._pending.values(), key=lambda change: change.due)
            wait_s = pending.due - self._clock.monotonic()
            if wait_s <= 0:
                await self._run(pending)
            else:
                await self._sleep(wait_s)

    async def wait_tried(self) -> bool:
        """Return when the command has run for each change added so far; whether all runs have succeeded."""
        while any(not change.failures for change in self._pending.values()):
            self._ran.clear()
            await self._ran.wait()
        return not self._pending

    async def _sleep(self, seconds: float) -> None:
        """Return after `seconds`, or earlier when a change was added."""
        waits = [
            asyncio.ensure_future(self._clock.sleep(seconds)),
            asyncio.ensure_future(self._woken.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _run(self, pending: _Pending) -> None:
        change = pending.change
        variables = {
            "CERTWRIGHT_CERTIFICATE": f"{change.key.namespace}/{change.key.name}",
            "CERTWRIGHT_DIR": str(change.folder.absolute()),
        }
        try:
            await run_hook(self._command, variables, timeout_s=self._timeout_s)
            await asyncio.to_thread(change.mark_done)
        except (HookError, OSError) as error:
            self._failed(pending, error)
        else:
            _event(logging.INFO, "--on-change command succeeded", change.key)
            if self._pending.get(change.key) is pending:
                del self._pending[change.key]
        self._ran.set()

    def _failed(self, pending: _Pending, error: Exception) -> None:
        key = pending.change.key
        if self._pending.get(key) is not pending:
            # It runs again for the new files.
            _event(logging.WARNING, "--on-change command failed", key, cause=str(error))
            return
        wait_s = min(_FIRST_RETRY_S * 2.0**pending.failures, _LONGEST_RETRY_S)
        at = self._clock.now() + timedelta(seconds=wait_s)
        _event(logging.WARNING, "--on-change command failed", key, nextAttempt=at, cause=str(error))
        due = self._clock.monotonic() + wait_s
        self._pending[key] = _Pending(pending.change, due, pending.failures + 1)


def _event(level: int, message: str, key: ObjectKey, **values: logs.Value) -> None:
    logs.event(_log, level, message, subject=f"Certificate/{key}", certificate=str(key), **values)
