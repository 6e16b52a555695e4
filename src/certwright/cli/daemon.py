"""Common code of long-running commands: options, signals, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import click

from certwright import __version__
from certwright.cli import errors, lazy
from certwright.cli.access import DEFAULT_DATA_DIR
from certwright.cli.configuration import in_keys, reread
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
        """Stop the component."""


DATA_DIR = directory(
    "--data-dir",
    "Directory of the store, the server's own keys and the kubeconfig; created if missing.",
    default=DEFAULT_DATA_DIR,
    section="Store",
    often=True,
)
ENCRYPTION_KEY_FILE = file(
    "--encryption-key-file",
    "The key of the Secrets in the store.  "
    "[default: $CERTWRIGHT_ENCRYPTION_KEY, or DIR/encryption.key, which is created if missing]",
    section="Store",
    often=True,
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
        reloads=True,
        often=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFlags:
    """The settings of the log. `log_level` None: info with `--log-format json`, else warning."""

    SECTION: ClassVar = "Log"

    log_level: str | None = level_flag("info")
    log_format: str = flag(
        "--log-format",
        "Log lines for people, or for machines: one JSON object per line.",
        type=click.Choice(list(logs.FORMATS)),
        default="text",
        reloads=True,
        often=True,
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
    which returns a sentence about its changes, or raises `Failed` without any; the program continues."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.signal: signal.Signals | None = None
        self.reload: Callable[[], Awaitable[str]] | None = None
        self._reloads = asyncio.Event()
        self._status = ""
        # Before anything is started: child processes must not report for this one.
        self._service = ServiceManager()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._reloads.set)
        # Signals that came while the program was loaded are handled now, and reload when it has started.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))

    def ready(self, status: str) -> None:
        """Notify the service manager of the start; `status` is a sentence for `systemctl status`."""
        self._status = status
        self._service.ready(status)

    async def _keep_reloading(self) -> None:
        while True:
            await self._reloads.wait()
            # BEFORE files are read: a signal that comes meanwhile may be about what has been read.
            self._reloads.clear()
            self._service.reloading()
            status = self._status
            try:
                # At any level: an operator who sends the signal waits for this line.
                _log.warning("SIGHUP: %s", await self.reload() if self.reload else "nothing to reload")
            except Failed as error:
                _log.error("SIGHUP: %s", error.message)
                status = f"{status}; the last reload failed: {error.message}"
            except Exception:
                _log.exception("SIGHUP: the settings could not be reloaded")
                status = f"{status}; the last reload failed"
            self._service.ready(status)

    def _signalled(self, number: signal.Signals) -> None:
        if self.event.is_set():
            os._exit(128 + number)
        self.signal = number
        self.event.set()

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`; None if a signal came first, which cancels the work. Raises what `work`
        raises."""
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
    async def ending(self, component: Component, logger: logging.Logger) -> AsyncIterator[None]:
        """Close the component after the block, within the shutdown time."""
        alive = asyncio.ensure_future(self._service.keep_alive())
        reloading = asyncio.ensure_future(self._keep_reloading())
        try:
            yield
        finally:
            alive.cancel()
            reloading.cancel()
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


async def reload(context: click.Context, use: Callable[[Any], Awaitable[str]]) -> str:
    """Read the flags and files of a running command again, and `use` the settings that its function returns
    while `only_reading`; `use` returns the files it has read. Returns a sentence about all changes. Raises
    `Failed`, without a change."""
    try:
        fresh = await asyncio.to_thread(reread, context)
        done = await use(fresh.settings)
    except (click.ClickException, lazy.app.StartError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        text = in_keys(context, " ".join(text.split()).rstrip("."))
        raise Failed(f"nothing was changed, and the former settings stay in use: {text}") from error
    context.params.update(fresh.params)
    return "; ".join(part for part in (done, str(fresh)) if part)


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
