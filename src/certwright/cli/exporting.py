"""Keep the export directory of a server in sync with its Secrets, and run the command of `--on-change`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from certwright.cli.errors import Failed
from certwright.cli.export import Exporter, ExportInUse, UnsafeName, folder_of, pair_problem
from certwright.kit import logs
from certwright.kit.hooks import DEFAULT_TIMEOUT_S, HookError, run_hook
from certwright.kube.api.core import EVENTS, SECRETS, Event, EventSource, Secret, TypedObjectReference
from certwright.kube.api.errors import ApiError, NotFound, Unreachable
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import ObjectKey, ObjectMeta, Struct
from certwright.kube.client.filtered_informer import Identified, Identity, identities
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.tasks import TaskSet
from certwright.resources import table

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


_log = logging.getLogger(__name__)

_CERTIFICATE_NAME: Final = "cert-manager.io/certificate-name"
_BY_TARGET: Final = "target"
_COMPONENT: Final = "certwright-export"
# Changes within this time are written together.
_TOGETHER_S = 0.05
# How often the files are compared with what was written, and failed writes are tried again.
RESCAN_S = 5.0
# A scan takes at most this part of the time, however many files there are.
_REST_PER_SCAN = 50


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The directory, whether private keys of CAs are exported, and the command for changed certificates
    (None: there is none). `reserves_late`: the directory is reserved when the first file is written."""

    reserves_late: bool
    root: Path
    with_ca_keys: bool
    command: str | None
    timeout_s: float


class Exports:
    """The export directory of this process. Use it within `opened`."""

    def __init__(self, settings: ExportSettings, clock: Clock | None = None) -> None:
        self.root = settings.root
        self._reserves_late = settings.reserves_late
        self._clock = clock = clock or SystemClock()
        self.exporter = Exporter(settings.root, with_ca_keys=settings.with_ca_keys)
        self._failing: dict[ObjectKey, str] = {}
        self.on_unusable: Callable[[ObjectKey, str], Awaitable[None]] | None = None
        """Called with a sentence about a Secret whose certificate and key are not exported."""
        self._on_change: OnChange | None = None
        if settings.command is not None:
            self._on_change = OnChange(settings.command, clock, timeout_s=settings.timeout_s)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Exports]:
        """Reserve the directory, and run the command for what is exported until the end. Raises `Failed`."""
        tasks = TaskSet()
        if not self._reserves_late:
            self._reserve()
        if self._on_change is not None:
            tasks.start(self._on_change.run(), name="--on-change")
        try:
            yield self
        finally:
            await tasks.close()
            self.exporter.release()

    def _reserve(self) -> None:
        try:
            self.exporter.lock()
        except ExportInUse as error:
            raise Failed(str(error)) from error
        except OSError as error:
            where = error.filename or self.root
            raise Failed(
                f"cannot write to {where}: {error.strerror or error}; choose another place with --export"
            ) from error

    async def write(self, key: ObjectKey, secret: Secret | None) -> bool:
        """Write the files of the certificate, and return whether any has changed. A failure is logged, and
        `overdue` returns the certificate until it succeeds; a Secret whose key is not that of its certificate
        replaces no files. Raises `Failed` if the directory cannot be reserved."""
        if secret is None or not _belongs(secret, key):
            self._failing.pop(key, None)
            return False
        self._reserve()
        # A server that reads a wrong pair does not start, not even for its other sites.
        if problem := await asyncio.to_thread(pair_problem, secret.data):
            message = f"Secret {secret.metadata.name}: {problem}; the exported files stay as they are"
            if self.fail(key, message) and self.on_unusable is not None:
                await self.on_unusable(key, message)
            return False
        try:
            result = await asyncio.to_thread(self.exporter.write, key.namespace, key.name, secret.data)
        except UnsafeName as error:
            self.fail(key, str(error))
            return False
        except OSError as error:
            self.fail(key, f"{error.filename or self.root}: {error.strerror or error}")
            return False
        self._failing.pop(key, None)
        if result.removed_ca_key:
            self._event(logging.WARNING, "private key of a CA removed; --export-ca-keys keeps it", key)
        if result.changed:
            self._event(logging.INFO, "files replaced", key, files=",".join(result.changed))
        if self._on_change is not None and not result.is_done:
            done = partial(self.exporter.mark_done, key.namespace, key.name, result.version)
            self._on_change.add(
                Change(key=key, folder=self.folder(key), version=result.version, mark_done=done)
            )
        return bool(result.changed)

    async def follow(self, client: Client) -> None:
        """Export the certificates of this server, of all namespaces, as they change, for ever."""
        await _Follower(client, self, self._clock).run()

    def forget(self, key: ObjectKey) -> None:
        """Leave the files of a deleted Certificate as they are."""
        self._failing.pop(key, None)
        self.exporter.forget(key)

    async def overdue(self) -> list[ObjectKey]:
        """The certificates to be written again: files were changed or deleted by others, or writing
        failed."""
        return [*self._failing, *await asyncio.to_thread(self.exporter.changed_by_others)]

    def folder(self, key: ObjectKey) -> Path:
        """The folder of the certificate's files."""
        return folder_of(self.root, *key)

    def names(self, key: ObjectKey) -> list[str]:
        """The names of the certificate's files; empty before the first."""
        return self.exporter.names(*key)

    async def wait_command(self) -> bool:
        """Return when the command has run for each change so far; whether all runs have succeeded."""
        return self._on_change is None or await self._on_change.wait_tried()

    def fail(self, key: ObjectKey, reason: str) -> bool:
        """Log why the files were not written, and return whether that is new; `overdue` returns the
        certificate until they are."""
        is_new = self._failing.get(key) != reason
        if is_new:
            self._event(logging.WARNING, "files not written; trying again", key, cause=reason)
        self._failing[key] = reason
        return is_new

    def _event(self, level: int, message: str, key: ObjectKey, **values: logs.Value) -> None:
        subject, directory = f"Certificate/{key}", str(self.folder(key))
        logs.event(_log, level, message, subject=subject, certificate=str(key), directory=directory, **values)


class _Named(Struct, frozen=True):
    """The name of the Secret of a Certificate."""

    secret_name: str = ""


class _Target(Struct, frozen=True):
    """A Certificate, reduced to its identity and the name of its Secret."""

    metadata: Identity = Identity()
    spec: _Named = _Named()


def _reduced(kind: AnyKind) -> Kind[_Target]:
    return msgspec.structs.replace(kind, type=_Target)


class _Follower:
    """Exports the certificates of a server, of all namespaces, as they change."""

    def __init__(self, client: Client, exports: Exports, clock: Clock) -> None:
        self._client, self._exports, self._clock = client, exports, clock
        self._due: set[ObjectKey] = set()
        self._changed = asyncio.Event()
        self._certificates: Informer[_Target] = Informer(
            client, _reduced(table.CERTIFICATES), clock, indexers={_BY_TARGET: _secret_names}
        )
        self._certificates.add_handler(lambda _old, new: self._add(() if new is None else (_key(new),)))
        self._secrets: Informer[Identified] = Informer(client, identities(SECRETS), clock, metadata_only=True)
        self._secrets.add_handler(lambda _old, new: self._secret_changed(new))
        exports.on_unusable = self._record

    async def run(self) -> None:
        """Export for ever."""
        tasks = TaskSet()
        for informer in (self._certificates, self._secrets):
            tasks.start(informer.run(), name=f"export of {informer.kind.plural}")
        tasks.start(self._rescan(), name="rescan of the export")
        try:
            await self._certificates.synced.wait()
            while True:
                await self._changed.wait()
                await self._clock.sleep(_TOGETHER_S)
                self._changed.clear()
                due, self._due = self._due, set()
                for key in sorted(due):
                    await self._export(key)
        finally:
            await tasks.close()

    async def _record(self, key: ObjectKey, message: str) -> None:
        """Write an Event about the Certificate."""
        target = self._certificates.cache.get(key)
        if target is None:
            return
        kind, now = table.CERTIFICATES, self._clock.now().replace(microsecond=0)
        event = Event(
            metadata=ObjectMeta(generate_name=f"{key.name}-", namespace=key.namespace),
            involved_object=TypedObjectReference(
                api_version=kind.api_version,
                kind=kind.kind,
                namespace=key.namespace,
                name=key.name,
                uid=target.metadata.uid,
            ),
            type="Warning",
            reason="NotExported",
            message=message,
            source=EventSource(component=_COMPONENT),
            first_timestamp=now,
            last_timestamp=now,
            count=1,
        )
        try:
            await self._client.create(EVENTS, event)
        except (ApiError, Unreachable) as error:
            _log.warning("an Event about Certificate %s was not written: %s", key, error)

    async def _export(self, key: ObjectKey) -> None:
        target = self._certificates.cache.get(key)
        if target is None:
            self._exports.forget(key)
            return
        try:
            secret = await self._client.get(SECRETS, target.spec.secret_name, key.namespace)
        except NotFound:
            return
        except ApiError as error:
            self._exports.fail(key, f"its Secret cannot be read: {error}")
            return
        await self._exports.write(key, secret)

    async def _rescan(self) -> None:
        while True:
            began = self._clock.monotonic()
            self._add(await self._exports.overdue())
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(RESCAN_S, _REST_PER_SCAN * took))

    def _secret_changed(self, secret: Identified | None) -> None:
        if secret is not None:
            owner = _value(secret.metadata.namespace, secret.metadata.name)
            self._add(self._certificates.cache.keys_by_index(_BY_TARGET, owner))

    def _add(self, keys: Iterable[ObjectKey]) -> None:
        self._due.update(keys)
        if self._due:
            self._changed.set()


def _value(namespace: str, secret: str) -> str:
    return f"{namespace}/{secret}"


def _secret_names(target: _Target) -> Iterable[str]:
    return (_value(target.metadata.namespace, target.spec.secret_name),)


def _key(target: _Target) -> ObjectKey:
    return ObjectKey(target.metadata.namespace, target.metadata.name)


def _belongs(secret: Secret, key: ObjectKey) -> bool:
    """Whether it contains a certificate, and not that of another Certificate that names the same Secret."""
    owner = secret.metadata.annotations.get(_CERTIFICATE_NAME, key.name)
    return owner == key.name and bool(secret.data.get("tls.crt"))
