"""Run the operator's hooks: Deliveries that change within a moment share one run of a command.

HAProxy's runtime API is called for each Delivery, so a refused file fails one Delivery only.

Source: HAProxy management guide, "set ssl cert", "commit ssl cert", "abort ssl cert".
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from certwright.controllers.deliveries.permissions import HAPROXY, DeliveryOptions
from certwright.kit.hooks import HookError, run_hook
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.clock import Clock
from certwright.kube.util.encoding import in_words, one_line

_LONGEST_ANSWER = 4096


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
        """Run the hook of that name for this change, a command also for others of the same moment. Raises
        `HookError`."""
        hook = self._options.hooks[name]
        if hook.startswith(HAPROXY):
            if not change.combined:
                raise HookError("a HAProxy hook needs an output of format Combined")
            async with self._turn(name):
                for file in change.combined:
                    socket, timeout_s = hook.removeprefix(HAPROXY), self._options.hook_timeout_s
                    await replace_certificate(socket, file, timeout_s=timeout_s)
            return
        batch = self._batches.setdefault(name, _Batch())
        batch.changes.append(change)
        if batch.run is None:
            batch.run = asyncio.create_task(self._run_batch(name, batch), name=f"hook {name}")
        # Shielded, because others wait for the same run.
        await asyncio.shield(batch.run)

    async def _run_batch(self, name: str, batch: _Batch) -> None:
        await self._clock.sleep(_DEBOUNCE_S)
        async with self._turn(name):
            # Changes from now on are in the next batch.
            del self._batches[name]
            variables = {
                "CERTWRIGHT_DELIVERIES": "\n".join(str(change.key) for change in batch.changes),
                "CERTWRIGHT_DIRS": "\n".join(str(change.folder) for change in batch.changes),
            }
            await run_hook(self._options.hooks[name], variables, timeout_s=self._options.hook_timeout_s)

    def _turn(self, name: str) -> asyncio.Lock:
        return self._running.setdefault(name, asyncio.Lock())


async def replace_certificate(socket: str, file: Path, *, timeout_s: float) -> None:
    """Replace the certificate that HAProxy has loaded from `file`, by the path in its configuration.

    Raises `HookError`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            pem = await asyncio.to_thread(file.read_bytes)
            # An empty line ends the payload.
            payload = b"\n".join(line for line in pem.splitlines() if line.strip())
            await _call(socket, f"set ssl cert {file}", expected="ransaction ", payload=payload)
            try:
                await _call(socket, f"commit ssl cert {file}", expected="Success!")
            except HookError:
                await _call(socket, f"abort ssl cert {file}", expected="")
                raise
    except TimeoutError:
        raise HookError(f"HAProxy did not answer at {socket} within {timeout_s:g} s") from None
    except OSError as error:
        raise HookError(f"HAProxy cannot be reached at {socket}: {in_words(error)}") from error


async def _call(socket: str, command: str, *, expected: str, payload: bytes = b"") -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(command.encode() + (b" <<\n%b\n\n" % payload if payload else b"\n"))
        await writer.drain()
        answer = (await reader.read(-1))[:_LONGEST_ANSWER].decode(errors="replace")
    finally:
        writer.close()
    if expected not in answer:
        raise HookError(f"HAProxy's answer to `{command}` was: {one_line(answer) or '(empty)'}")
