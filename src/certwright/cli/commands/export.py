"""`certwright export`."""

from __future__ import annotations

import asyncio
import random
import re
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from certwright.cli import access, lazy
from certwright.cli.commands.expiring import parse_addresses
from certwright.cli.daemon import Stop
from certwright.cli.errors import Failed, report, report_warning
from certwright.cli.flags import directory, file, flag, flag_options, seconds
from certwright.cli.local_copy import FORMATS, NEED_PASSWORD, PEM, CopySettings, LocalCopy, Problem, Status
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options
from certwright.diagnosis.words import sentence
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import ApiError, Expired, Forbidden, NoCredentials, Unauthorized, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import Condition, ObjectKey, ObjectMeta, Struct
from certwright.kube.client.rest import Client
from certwright.kube.client.watch import BOOKMARK
from certwright.kube.util.durations import doubled

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=1)
_SHORTEST_PAUSE_S: Final = 0.1
# After a watch has ended everything is read again: another Secret may have been named, or a file changed.
_WATCH_S: Final = (300, 480)
_WAITING_S: Final = 60
# A silent server is left after twice that time. Longer than elsewhere: a hundred followers cost the server
# less, and do not all come back when it stands still for some seconds.
_HEARTBEAT_S: Final = 15
# The kubeconfig is read each day, also for the warning that its token ends.
_SESSION_S: Final = 86_400.0
# A server that reloads serves the former certificate for a moment.
_RELOAD_S: Final = (0.0, 0.5, 1.0, 2.0, 4.0)
# A failure that lasts is reported again after that many attempts, an hour of the longest pauses.
_REMIND_EVERY: Final = 120
_GOOD_WATCH_S: Final = 30.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class _Spec(Struct, frozen=True):
    secret_name: str = ""


class _Status(Struct, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _Certificate(Struct, frozen=True):
    """A Certificate, reduced to the name of its Secret and its conditions."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


# Not from `resources.table`, which loads all kinds: a follower is to be small.
_CERTIFICATES: Final[Kind[_Certificate]] = Kind(
    "cert-manager.io", "v1", "Certificate", "certificates", "certificate", True, _Certificate
)


def _parse_name(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, str]:
    namespace, slash, name = value.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _NAME.fullmatch(namespace)):
        raise click.BadParameter(
            f"{value!r} is not the name of a Certificate; write NAME or NAMESPACE/NAME, e.g. web or shop/web"
        )
    return namespace, name


def _parse_formats(values: tuple[str, ...]) -> tuple[str, ...]:
    formats = tuple(dict.fromkeys(word.strip() for value in values for word in value.split(",")))
    if unknown := [form for form in formats if form not in (PEM, *FORMATS)]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join((PEM, *FORMATS))}")
    return formats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flags:
    """What is written where, and what happens afterwards."""

    to: Path = directory("--to", "The directory of the files; created if missing.")
    formats: tuple[str, ...] = flag(
        "--format",
        "pem (tls.crt, tls.key and ca.crt), combined (tls-combined.pem: certificate and key, for HAProxy), "
        "pkcs12 (keystore.p12) or jks (keystore.jks); may be repeated.",
        metavar="FORMAT",
        multiple=True,
        default=(PEM,),
        parse=_parse_formats,
    )
    password_file: Path | None = file(
        "--password-file", "The file with the password of pkcs12 and jks; its first line counts."
    )
    follow: bool = flag(
        "--follow", "Go on, and replace the files whenever the certificate is renewed.", is_flag=True
    )
    on_change: str = flag(
        "--on-change",
        "Run by /bin/sh after the files were replaced, with CERTWRIGHT_CERTIFICATE (namespace/name) and "
        "CERTWRIGHT_DIR; repeated until it succeeds.",
        metavar="'COMMAND'",
        default="",
    )
    on_change_timeout_s: float = seconds(
        "--on-change-timeout", "How long COMMAND may take before it is killed.", default="60s"
    )
    served_at: tuple[lazy.tls_scan.TlsAddress, ...] = flag(
        "--served-at",
        "Check that this address then serves the certificate; also NAME@HOST:PORT, smtp://HOST, imap://HOST "
        "or postgres://HOST; may be repeated.",
        metavar="HOST:PORT",
        multiple=True,
        parse=parse_addresses,
    )

    def __post_init__(self) -> None:
        if self.to is None:
            raise click.UsageError(
                "--to is missing; name the directory of the files, e.g. --to /etc/nginx/tls"
            )
        if self.password_file is None and (needs := NEED_PASSWORD & set(self.formats)):
            raise click.UsageError(
                f"--format {min(needs)} needs --password-file FILE, with the password in it"
            )

    def settings(self) -> CopySettings:
        """The settings. Raises `Failed`."""
        return CopySettings(
            directory=self.to,
            formats=self.formats,
            password=_password(self.password_file) if self.password_file is not None else "",
            command=self.on_change,
            command_timeout_s=self.on_change_timeout_s,
            served_at=self.served_at,
        )


def _password(path: Path) -> str:
    try:
        line = path.read_text().partition("\n")[0].rstrip("\r")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Failed(f"--password-file {path} cannot be read: {reason}") from None
    if not line:
        raise Failed(f"--password-file {path} has no password in its first line; write one")
    return line


@click.command(short_help="Copy a certificate's files to this machine, once or at every renewal.")
@click.argument("certificate", metavar="NAME", callback=_parse_name)
@flag_options("flags", _Flags)
@namespaced_server_options
@asynchronous
async def command(*, certificate: tuple[str, str], flags: _Flags, server: ServerOptions) -> None:
    """Copy the files of the Certificate NAME (or NAMESPACE/NAME) to a directory of this machine.

    All files are replaced at one moment, and keep mode, owner and group. With --follow it goes on: it waits
    for the Certificate if need be, replaces the files within a second of each renewal, and connects again
    after any failure of the server or the network. The kubeconfig is read again for each connection, so that
    a new one needs no restart; `certwright user create HOST --certificates NAME` makes one that may read
    nothing else.

    Exit statuses: 0 the files are current, 1 failed, 2 wrong use, 3 not issued yet, 4 the server cannot be
    reached, 5 it rejects the credentials, 6 the files cannot be written, 7 the command of --on-change failed,
    8 an address of --served-at does not serve the certificate.

    \b
    Examples:
      certwright export web --to tls
      certwright export shop/web --to /etc/haproxy/certs --format combined
      certwright export web --to /etc/nginx/tls --follow --on-change 'systemctl reload nginx'
    """
    namespace, name = certificate
    if namespace and server.namespace not in (None, namespace):
        raise click.UsageError(
            f"{namespace}/{name} is not in the namespace of -n {server.namespace}; leave one out"
        )
    exporter = _Exporter(namespace, name, flags.settings(), server)
    try:
        if flags.follow:
            await Stop().unless_stopped(exporter.follow())
        else:
            await exporter.export()
    finally:
        exporter.close()


class _Exporter:
    """Exports one Certificate, once or for ever."""

    def __init__(self, namespace: str, name: str, settings: CopySettings, server: ServerOptions) -> None:
        self._namespace, self._name = namespace, name
        self._settings, self._server = settings, server
        self._copy: LocalCopy | None = None
        self._is_connected = False
        self._watched: tuple[Kind[Any], str, str]
        self._failures, self._repeated = 0, 0
        # The last problem; at first none, so that the first success is reported as well.
        self._sentence: str | None = ""

    def close(self) -> None:
        """Let other processes write to the directory."""
        if self._copy is not None:
            self._copy.close()

    async def export(self) -> None:
        """Export it once. Raises `Failed`, with the exit status."""
        try:
            async with access.session(self._server) as here:
                copy = self._open(here)
                wrote = await self._write(here.client, copy)
        except (Failed, ApiError) as error:
            raise _problem_of(error) from error
        await copy.run_command()
        await self._check_served(copy)
        report(wrote or copy.summary)

    async def follow(self) -> None:
        """Export it, and again after every change, for ever. Raises `Failed` before the first answer of the
        server, for what will not pass by itself."""
        while True:
            try:
                async with access.session(self._server, heartbeat_s=_HEARTBEAT_S) as here:
                    copy, ends = self._open(here), time.monotonic() + _SESSION_S
                    while time.monotonic() < ends:
                        problem = await self._export_again(here.client, copy)
                        await self._wait_changed(here.client, copy, problem)
            except (Failed, ApiError) as error:
                problem = _problem_of(error)
                if not self._is_connected and problem.exit_code != Status.UNREACHABLE:
                    raise problem from error
                self._note(problem)
                if self._copy is not None:
                    with suppress(Problem):  # reported when the server is reached again
                        await self._copy.run_command()
                await asyncio.sleep(self._pause_s())

    def _open(self, here: access.Session) -> LocalCopy:
        if self._copy is None:
            copy = LocalCopy(ObjectKey(self._namespace or here.namespace, self._name), self._settings)
            copy.open()
            self._copy = copy
        return self._copy

    async def _export_again(self, client: Client, copy: LocalCopy) -> Problem | None:
        wrote = ""
        try:
            if wrote := await self._write(client, copy):
                report(wrote)
            if await copy.run_command():
                report(f"{copy.key}: the command of --on-change has succeeded")
            await self._check_served(copy)
        except Problem as problem:
            self._note(problem)
            return problem
        if self._sentence is not None and not wrote:
            report(copy.summary)
        self._sentence = None
        return None

    async def _write(self, client: Client, copy: LocalCopy) -> str:
        certificate = await self._find(client, _CERTIFICATES, copy.key.namespace, copy.key.name)
        self._is_connected = True
        if certificate is None:
            raise Problem(Status.NOT_ISSUED, f"Certificate {copy.key} does not exist; create it")
        secret = await self._find(client, SECRETS, copy.key.namespace, certificate.spec.secret_name)
        if secret is None:
            ready = next((item.message for item in certificate.status.conditions if item.type == "Ready"), "")
            reason = f": {sentence(ready)}" if ready else ""
            raise Problem(Status.NOT_ISSUED, f"Certificate {copy.key} is not issued yet{reason}")
        return await copy.write(secret, f"{secret.metadata.uid}:{secret.metadata.resource_version}")

    async def _find(self, client: Client, kind: Kind[T], namespace: str, name: str) -> T | None:
        """The object, by a list of this name, from whose revision a watch misses nothing."""
        listing = await client.list(kind, namespace, fields=f"metadata.name={name}")
        self._watched = kind, name, listing.resource_version
        return listing.items[0] if listing.items else None

    async def _check_served(self, copy: LocalCopy) -> None:
        for pause_s in _RELOAD_S:
            await asyncio.sleep(pause_s)
            try:
                return await copy.check_served()
            except Problem as error:
                problem = error
        raise problem

    async def _wait_changed(self, client: Client, copy: LocalCopy, problem: Problem | None) -> None:
        """Return when what was read last has changed, and after a time."""
        kind, name, revision = self._watched
        wait_s = random.uniform(*_WATCH_S)  # noqa: S311 - spreads requests
        if problem is not None:
            wait_s = _WAITING_S if problem.exit_code == Status.NOT_ISSUED else self._pause_s()
        began, fields = time.monotonic(), f"metadata.name={name}"
        with suppress(TimeoutError, Expired):
            async with asyncio.timeout(wait_s):
                watch = client.watch_raw(kind, copy.key.namespace, resource_version=revision, fields=fields)
                async with aclosing(watch):
                    async for events in watch:
                        if any(event.type != BOOKMARK for event in events):
                            self._failures = 0
                            return
        if time.monotonic() - began < min(wait_s, _GOOD_WATCH_S):
            # A server or proxy that ends every watch immediately.
            await asyncio.sleep(self._pause_s())
        elif problem is None:
            self._failures = 0

    def _pause_s(self) -> float:
        """The pause after one more failure: any time up to a limit that doubles, so that the followers of a
        server do not come back together."""
        self._failures += 1
        limit = doubled(_FIRST_PAUSE, self._failures, cap=_LONGEST_PAUSE)
        return max(_SHORTEST_PAUSE_S, random.random() * limit.total_seconds())  # noqa: S311 - spreads requests

    def _note(self, problem: Problem) -> None:
        """Report a problem that is new, or has lasted for long."""
        said = problem.format_message()
        self._repeated = self._repeated + 1 if said == self._sentence else 0
        self._sentence = said
        if self._repeated % _REMIND_EVERY == 0:
            files = "; the files stay as they are" if self._copy is not None and self._copy.is_written else ""
            next_step = "waiting for it" if problem.exit_code == Status.NOT_ISSUED else "trying again"
            report_warning(f"{said}{files}; {next_step}")


def _problem_of(error: Failed | ApiError) -> Problem:
    """The problem, with its exit status."""
    if isinstance(error, Problem):
        return error
    cause = error.__cause__ if isinstance(error, Failed) else error
    status, said = Status.FAILED, error.format_message() if isinstance(error, Failed) else str(error)
    if isinstance(cause, Forbidden):
        said += "; on the server, `certwright user create` with --certificates gives a user this right"
    if isinstance(cause, Unauthorized | Forbidden | NoCredentials):
        status = Status.REJECTED
    elif isinstance(cause, Unreachable) or (isinstance(cause, ApiError) and cause.http_status >= 500):
        status = Status.UNREACHABLE
    return Problem(status, said)
