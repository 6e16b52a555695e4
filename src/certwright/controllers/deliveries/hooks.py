"""Run the operator's hooks: Deliveries that change within a moment share one run of their hook."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from certwright.controllers.deliveries.haproxy import replace_certificate
from certwright.controllers.deliveries.options import HAPROXY, DeliveryOptions
from certwright.kit.hooks import HookError, run_hook
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.clock import Clock

_DEBOUNCE_S = 0.25


class Change(msgspec.Struct, frozen=True):
    """A Delivery whose files were replaced, and the paths of its Combined files."""

    key: ObjectKey
    folder: Path
    combined: tuple[Path, ...] = ()


@dataclass(slots=True)
class _Batch:
    changes: list[Change] = field(default_factory=list)
    run: asyncio.Task[None] | None = None


class Hooks:
    """Runs hooks by name, each hook once at a time."""

    def __init__(self, options: DeliveryOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._batches: dict[str, _Batch] = {}
        self._running: dict[str, asyncio.Lock] = {}

    async def run(self, name: str, change: Change) -> None:
        """Run the hook of that name for this change and for others of the same moment. Raises `HookError`."""
        batch = self._batches.setdefault(name, _Batch())
        batch.changes.append(change)
        if batch.run is None:
            batch.run = asyncio.create_task(self._run_batch(name, batch), name=f"hook {name}")
        # Shielded, because others wait for the same run.
        await asyncio.shield(batch.run)

    async def _run_batch(self, name: str, batch: _Batch) -> None:
        await self._clock.sleep(_DEBOUNCE_S)
        async with self._running.setdefault(name, asyncio.Lock()):
            # Changes from now on are in the next batch.
            del self._batches[name]
            await self._call(self._options.hooks[name], batch.changes)

    async def _call(self, hook: str, changes: list[Change]) -> None:
        timeout_s = self._options.hook_timeout_s
        if hook.startswith(HAPROXY):
            files = [file for change in changes for file in change.combined]
            if not files:
                raise HookError("a HAProxy hook needs an output of format Combined")
            for file in files:
                await replace_certificate(hook.removeprefix(HAPROXY), file, timeout_s=timeout_s)
            return
        variables = {
            "CERTWRIGHT_DELIVERIES": "\n".join(f"{one.key.namespace}/{one.key.name}" for one in changes),
            "CERTWRIGHT_DIRS": "\n".join(str(one.folder) for one in changes),
        }
        await run_hook(hook, variables, timeout_s=timeout_s)
