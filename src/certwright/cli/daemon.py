"""Common code of long-running commands: options, signals, and shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from certwright import __version__
from certwright.cli import errors
from certwright.cli.access import DEFAULT_DATA_DIR
from certwright.cli.errors import Failed, report_warning
from certwright.cli.options import TRUTH, Decorator, gathered
from certwright.kit import logs
from certwright.kube.api import naming
from certwright.kube.util.durations import format_duration, parse_duration
from certwright.resources.names import COPIED_ANNOTATION_PREFIXES

_log = logging.getLogger(__name__)

_CLOSE_S = 1.8
"""The rest of the two seconds within which Ctrl-C has to end the program."""

T = TypeVar("T")
Closer = Callable[[], Awaitable[None]]

FEATURE_GATES = click.option(
    "--feature-gates",
    metavar="GATE=BOOL,…",
    default="",
    help="Enable or disable features, e.g. SecretsFilteredCaching=false.  [default: all on, but PostQuantum]",
)


def data_dir_option(text: str) -> Decorator:
    """Add `--data-dir` as `data_dir: Path`."""
    return click.option(
        "--data-dir",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        default=DEFAULT_DATA_DIR,
        show_default=True,
        help=text,
    )


DATA_DIR = data_dir_option(
    "Directory of the store, the server's own keys and the kubeconfig; created if missing."
)


ENCRYPTION_KEY_FILE = click.option(
    "--encryption-key-file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The key of the Secrets in the store.  "
    "[default: $CERTWRIGHT_ENCRYPTION_KEY, or DIR/encryption.key, which is created if missing]",
)
ENCRYPT_SECRETS = click.option(
    "--encrypt-secrets",
    metavar="BOOL",
    type=TRUTH,
    default=True,
    help="Whether Secrets are encrypted in the store; false decrypts a SQLite file, but not an etcd."
    "  [default: true]",
)


def parse_duration_option(_context: click.Context, _option: click.Parameter, value: str) -> timedelta:
    """Parse a duration such as `90s` or `1h30m`."""
    try:
        duration = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if duration < timedelta(0):
        raise click.BadParameter(f"{value!r} cannot be negative")
    return duration


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFlags:
    """The settings of the controllers. Raises `click.UsageError`."""

    controllers: str
    cluster_resource_namespace: str
    backoff_minimum: timedelta
    backoff_maximum: timedelta
    issuer_attempts_per_hour: int
    certificate_owner_references: bool
    copied_annotation_prefixes: tuple[str, ...]
    notifications: Path | None
    feature_gates: str

    def __post_init__(self) -> None:
        if self.backoff_minimum > self.backoff_maximum:
            raise click.UsageError(
                f"the minimum backoff ({format_duration(self.backoff_minimum)}) is longer than "
                f"the maximum ({format_duration(self.backoff_maximum)})"
            )


def _check_namespace(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if naming.check_name(value, rule="label") is not None:
        raise click.BadParameter(
            f"{value!r} is not a namespace: a name has at most {naming.MAX_LABEL} lower-case letters, digits"
            " and `-`, and begins and ends with a letter or digit"
        )
    return value


_CONTROLLER_OPTIONS = (
    click.option(
        "--controllers",
        metavar="LIST",
        default="*",
        show_default=True,
        help="Which controllers run: `*` for all, names, `-name` to leave one out; empty for none.",
    ),
    click.option(
        "--cluster-resource-namespace",
        metavar="NS",
        default="kube-system",
        show_default=True,
        callback=_check_namespace,
        help="Namespace of the Secrets of ClusterIssuers.",
    ),
    click.option(
        "--certificate-request-minimum-backoff-duration",
        "backoff_minimum",
        metavar="DURATION",
        default="1h",
        show_default=True,
        callback=parse_duration_option,
        help="How long to wait after the first failed request; doubled after each further one.",
    ),
    click.option(
        "--certificate-request-maximum-backoff-duration",
        "backoff_maximum",
        metavar="DURATION",
        default="32h",
        show_default=True,
        callback=parse_duration_option,
        help="The longest wait between failed requests.",
    ),
    click.option(
        "--issuer-attempts-per-hour",
        metavar="N",
        type=click.IntRange(min=0),
        default=12,
        show_default=True,
        help="How many attempts of all certificates a failing issuer gets in an hour; 0: no limit.",
    ),
    click.option(
        "--enable-certificate-owner-ref",
        "certificate_owner_references",
        metavar="BOOL",
        type=TRUTH,
        default=False,
        # As Go's flags: without a value it means true.
        is_flag=False,
        flag_value=True,
        help="Whether a Certificate's Secret belongs to it, and is deleted with it.  [default: false]",
    ),
    click.option(
        "--copied-annotation-prefixes",
        metavar="LIST",
        multiple=True,
        default=(",".join(COPIED_ANNOTATION_PREFIXES),),
        show_default=True,
        callback=lambda _context, _option, lists: tuple(
            prefix for text in lists for prefix in text.split(",") if prefix
        ),
        help="Annotations of a Certificate that its requests get: their beginnings, * for all, - before what "
        "they do not get.",
    ),
    click.option(
        "--notifications",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Report failing and expiring certificates and failing issuers to the destinations of this file: "
        "mail, webhooks, apprise.",
    ),
)

controller_options = gathered("flags", ControllerFlags, _CONTROLLER_OPTIONS)
"""Adds cert-manager's flags of the controllers; the function gets them as `flags: ControllerFlags`. Needs
`FEATURE_GATES` too."""


@dataclass(frozen=True, slots=True)
class LogFlags:
    """The settings of the log. `log_level` None: info with `--log-format json`, else warning."""

    log_level: str | None
    log_format: str

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


def log_options(*, level: str | None = "info") -> Decorator:
    """Add `--log-level`, with the default `level`, and `--log-format`, as `log: LogFlags`."""
    default = level or "warning; info with --log-format json"
    options = (
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default=level,
            help=f"Log level on standard error.  [default: {default}]",
        ),
        click.option(
            "--log-format",
            type=click.Choice(list(logs.FORMATS)),
            default="text",
            show_default=True,
            help="Log lines for people, or for machines: one JSON object per line.",
        ),
    )
    return gathered("log", LogFlags, options)


class Stop:
    """Set once by SIGINT or SIGTERM; a second signal ends the program immediately. SIGHUP calls `reload`,
    which returns a sentence about what it has done, and never ends the program."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.signal: signal.Signals | None = None
        self.reload: Callable[[], str] = lambda: "nothing to reload"
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

    async def unless_stopped(self, start: Coroutine[Any, Any, T]) -> T | None:
        """The result of `start`; None if a signal came first, which cancels it. Raises what it raises."""
        starting = asyncio.ensure_future(start)
        asked = asyncio.ensure_future(self.event.wait())
        try:
            await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,), timeout=_CLOSE_S)
        if not starting.done() or starting.cancelled():
            return None
        return starting.result()

    async def wait_or(self, failed: Coroutine[Any, Any, BaseException]) -> None:
        """Return on a signal. Raises `Failed` if `failed` reports first that a task has died."""
        broken = asyncio.ensure_future(failed)
        asked = asyncio.ensure_future(self.event.wait())
        try:
            await asyncio.wait((broken, asked), return_when=asyncio.FIRST_COMPLETED)
            if broken.done() and not asked.done():
                raise Failed(f"a component has stopped working: {broken.result()}")
        finally:
            broken.cancel()
            asked.cancel()


def log_started(logger: logging.Logger, **values: logs.Value) -> None:
    """Log the start of a long-running command."""
    logs.event(logger, logging.INFO, "started", subject="process", version=__version__, **values)


def log_stopping(logger: logging.Logger, stop: Stop) -> None:
    """Log the stop of a long-running command, with its reason."""
    reason = stop.signal.name if stop.signal is not None else "failure" if sys.exc_info()[0] else "done"
    logs.event(logger, logging.INFO, "stopping", subject="process", reason=reason)


async def close(closer: Closer) -> None:
    """Stop what is running, within the shutdown time."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await closer()
    except TimeoutError:
        report_warning(
            f"shutdown did not complete within {_CLOSE_S} s; acknowledged writes are safe, the rest is "
            "dropped"
        )


def leave(status: int = 0) -> None:
    """End the process although a thread is still running, e.g. a long key generation with no further use.

    Does nothing without such a thread, because the ordinary exit is then as fast.
    """
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
