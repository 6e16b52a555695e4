"""Common code of long-running commands: options, signals, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import click

from certwright import __version__
from certwright.cli import errors
from certwright.cli.access import DEFAULT_DATA_DIR
from certwright.cli.errors import Failed, report_warning
from certwright.cli.flags import directory, file, flag
from certwright.kit import logs
from certwright.kit.service_manager import ServiceManager

_log = logging.getLogger(__name__)

_CLOSE_S = 1.8
"""The rest of the two seconds within which Ctrl-C has to end the program."""

T = TypeVar("T")


class Component(Protocol):
    """What a long-running command runs."""

    async def wait_failed(self) -> BaseException:
        """Return when a task that must never end has ended, with the reason."""

    async def close(self) -> None:
        """Stop it."""


DATA_DIR = directory(
    "--data-dir",
    "Directory of the store, the server's own keys and the kubeconfig; created if missing.",
    default=DEFAULT_DATA_DIR,
)
ENCRYPTION_KEY_FILE = file(
    "--encryption-key-file",
    "The key of the Secrets in the store.  "
    "[default: $CERTWRIGHT_ENCRYPTION_KEY, or DIR/encryption.key, which is created if missing]",
)


def level_flag(level: str | None) -> Any:
    """`--log-level` with that default; None: warning, or info with `--log-format json`."""
    shown = level or "warning; info with --log-format json"
    return flag(
        "--log-level",
        f"Log level on standard error.  [default: {shown}]",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=level,
        show_default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFlags:
    """The settings of the log. `log_level` None: info with `--log-format json`, else warning."""

    log_level: str | None = level_flag("info")
    log_format: str = flag(
        "--log-format",
        "Log lines for people, or for machines: one JSON object per line.",
        type=click.Choice(list(logs.FORMATS)),
        default="text",
    )

    def set_up(self) -> None:
        """Send the log, and the errors of this command, to standard error."""
        level = self.log_level or ("info" if self.log_format == "json" else "warning")
        logs.set_up(level=level, form=self.log_format)
        logs.take_over_uncaught()
        errors.print_as(logs.json_line if self.log_format == "json" else None)

    def announce(self, sentence: str, **values: logs.Value) -> None:
        """Print a sentence on standard output; with `--log-format json` as a line of the log with
        `values`."""
        is_json = self.log_format == "json"
        click.echo(logs.json_line(logging.INFO, sentence, **values) if is_json else sentence)


class Stop:
    """Set once by SIGINT or SIGTERM; a second signal ends the program immediately. SIGHUP calls `reload`,
    which returns a sentence about what it has done, and never ends the program."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.signal: signal.Signals | None = None
        self.reload: Callable[[], str] = lambda: "nothing to reload"
        # Before anything is started: child processes must not report for this one.
        self._service = ServiceManager()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        # At any level: an operator who sends the signal waits for this line.
        _log.warning("SIGHUP: %s", self.reload())

    def _signalled(self, number: signal.Signals) -> None:
        if self.event.is_set():
            os._exit(128 + number)
        self.signal = number
        self.event.set()

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`; None if a signal came first, which cancels it. Raises what it raises."""
        working, stopped = asyncio.ensure_future(work), asyncio.ensure_future(self.event.wait())
        try:
            await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
        finally:
            working.cancel()
            stopped.cancel()
        await asyncio.wait((working,), timeout=_CLOSE_S)
        # It may have ended nevertheless.
        return working.result() if working.done() and not working.cancelled() else None

    @asynccontextmanager
    async def ending(self, component: Component, logger: logging.Logger) -> AsyncIterator[ServiceManager]:
        """Close the component after the block, within the shutdown time; the value is the service manager."""
        alive = asyncio.ensure_future(self._service.keep_alive())
        try:
            yield self._service
        finally:
            alive.cancel()
            reason = self.signal.name if self.signal else "failure" if sys.exc_info()[0] else "done"
            logs.event(logger, logging.INFO, "stopping", subject="process", reason=reason)
            self._service.stopping()
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await component.close()
            except TimeoutError:
                report_warning(
                    f"shutdown did not complete within {_CLOSE_S} s; acknowledged writes are safe, the rest "
                    "is dropped"
                )

    async def wait(self, component: Component) -> None:
        """Return on a signal. Raises `Failed` if a task of the component dies first."""
        error = await self.unless_stopped(component.wait_failed())
        if error is not None and not self.event.is_set():
            raise Failed(f"a component has stopped working: {error}")


def log_started(logger: logging.Logger, **values: logs.Value) -> None:
    """Log the start of a long-running command."""
    logs.event(logger, logging.INFO, "started", subject="process", version=__version__, **values)


def leave(status: int = 0) -> None:
    """End the process although a thread is still running, e.g. a long key generation with no further use.

    Does nothing without such a thread, because the ordinary exit is then as fast.
    """
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
