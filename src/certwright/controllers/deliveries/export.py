"""The export of `--export DIR`: every Certificate of a server as files `DIR/<namespace>/<certificate>/<key>`,
as if each had a Delivery. The files of a certificate are replaced together (`kit/versioned_files.py`).

Only the owner can read new files other than certificates (`*.crt`), because they are or may contain key
material. Mode, owner and group of a file are kept when it is replaced. The private key of a CA is not
exported, unless the operator requests it. The files of a deleted Secret stay: servers can use them until the
next Secret exists.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import msgspec

from certwright.kit import logs
from certwright.kit.hooks import DEFAULT_TIMEOUT_S, HookError, run_hook
from certwright.kit.versioned_files import File, VersionedFolder
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import ApiError, Conflict, NotFound, Unreachable
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import Condition, Object, ObjectKey, Struct
from certwright.kube.client.filtered_informer import Identified, Identity, identities
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.controller import Controller, Result
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.durations import doubled
from certwright.kube.util.files import AlreadyLocked, FileLock
from certwright.kube.util.tasks import TaskSet
from certwright.pki.certificates import read_certificate
from certwright.pki.errors import PkiError
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources import reasons
from certwright.resources.names import CERTIFICATE_NAME
from certwright.resources.table import CERTIFICATES

# RFC 1123 subdomains: names that the API server accepts. Other names never become a path.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Kubernetes' `IsConfigMapKey`, without a leading dot, so that no file is hidden and `..` is impossible.
_KEY = re.compile(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]{0,252}")
_KEY_FILES = frozenset(("tls.key", "key.der", "tls-combined.pem", "keystore.jks", "keystore.p12"))
"""The keys of a certificate's Secret that contain the private key."""
# The possible keys of a certificate's Secret: only files of these are removed.
_KNOWN = _KEY_FILES | {"tls.crt", "ca.crt", "truststore.jks", "truststore.p12"}
_LOCK = ".certwright.lock"

_log = logging.getLogger(__name__)


class UnsafeName(ValueError):
    """A namespace, certificate or key that must not become part of a path; the text is one sentence."""


class ExportFailed(Exception):
    """Another process exports to this directory, or it cannot be written; the text is one sentence."""


def folder_of(root: Path, namespace: str, certificate: str) -> Path:
    """The folder of a certificate's files. Raises `UnsafeName`."""
    for what, name in (("namespace", namespace), ("certificate", certificate)):
        if not _NAME.fullmatch(name):
            raise UnsafeName(f"{what} {name!r} is not exported: it is not a DNS-1123 name")
    return root / namespace / certificate


def pair_problem(data: Mapping[str, bytes]) -> str:
    """Why no server could use `tls.crt` with `tls.key`, in one phrase; empty: a server can."""
    name = "tls.crt"
    try:
        certificate = read_certificate(data.get(name, b""))
        name = "tls.key"
        if not data.get(name):
            return "there is no tls.key"
        if public_key_der(load_private_key(data[name])) != certificate.public_key_der:
            return "tls.key is not the private key of tls.crt"
    except PkiError as error:
        return f"{name} cannot be read: {error}"
    return ""


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a certificate's folder: the names of the files that were changed now, whether a CA's
    private key was among the removed ones, the version of the files, and whether the hook has succeeded for
    it."""

    changed: Sequence[str]
    removed_ca_key: bool
    version: str
    is_hook_done: bool


class Exporter:
    """Synchronizes folders with their Secrets. Does blocking file I/O: call it in a thread."""

    def __init__(self, root: Path, *, with_ca_keys: bool = False) -> None:
        self.root = root
        self._with_ca_keys = with_ca_keys
        self._names: dict[ObjectKey, frozenset[str]] = {}
        self._signatures: dict[ObjectKey, tuple[object, ...]] = {}
        self._lock: FileLock | None = None

    def lock(self) -> None:
        """Create the directory, and reserve it for this process. Raises `ExportFailed`."""
        if self._lock is not None:
            return
        lock = FileLock(self.root / _LOCK, holder=f"process {os.getpid()}")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except AlreadyLocked as error:
            raise ExportFailed(
                f"{self.root} is the export directory of another certwright ({error.holder or 'unknown'}); "
                "stop that one, or choose another directory with --export"
            ) from error
        except OSError as error:
            where = error.filename or self.root
            raise ExportFailed(
                f"cannot write to {where}: {error.strerror or error}; choose another place with --export"
            ) from error
        self._lock = lock

    def release(self) -> None:
        """Let other processes export to the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def write(self, namespace: str, certificate: str, data: Mapping[str, bytes]) -> Exported:
        """Update one certificate's folder.

        Raises `UnsafeName` before anything is written, and `OSError`.
        """
        key, path = ObjectKey(namespace, certificate), folder_of(self.root, namespace, certificate)
        for name in data:
            if not _KEY.fullmatch(name):
                raise UnsafeName(
                    f"key {name!r} of {namespace}/{certificate} is not exported: not a file name"
                )
        withheld = frozenset() if self._with_ca_keys or not _is_ca(data) else _KEY_FILES
        files = {
            name: File(content=content, is_private=not name.endswith(".crt"))
            for name, content in data.items()
            if name not in withheld
        }
        try:
            written = self._folder(key).write(
                lambda _read: files,
                obsolete=_KNOWN | self._names.get(key, frozenset()),
                replaces_foreign=True,
            )
        except OSError as error:
            # The names in the folder are relative to its descriptor.
            where = error.filename if error.filename and os.path.isabs(error.filename) else str(path)
            raise OSError(error.errno, error.strerror, where) from error
        self._names[key] = frozenset(files)
        self._signatures[key] = written.signature
        return Exported(
            changed=written.changed,
            removed_ca_key=not withheld.isdisjoint(written.changed),
            version=written.version,
            is_hook_done=written.is_hook_done,
        )

    def mark_hook_done(self, namespace: str, certificate: str, version: str) -> None:
        """Record that the hook has succeeded for this version. Raises `OSError`."""
        self._folder(ObjectKey(namespace, certificate)).mark_hook_done(version)

    def forget(self, key: ObjectKey) -> None:
        """Leave the files of a deleted Certificate as they are."""
        self._signatures.pop(key, None)

    def changed_by_others(self) -> list[ObjectKey]:
        """The certificates whose files were changed or deleted since they were written."""
        signatures = dict(self._signatures)  # `write` may run in another thread.
        return [
            key for key, signed in signatures.items() if self._folder(key).sign(self._names[key]) != signed
        ]

    def names(self, namespace: str, certificate: str) -> list[str]:
        """The names of the files written to one certificate's folder."""
        return sorted(self._names.get(ObjectKey(namespace, certificate), ()))

    def _folder(self, key: ObjectKey) -> VersionedFolder:
        return VersionedFolder(str(self.root), key)


def _is_ca(data: Mapping[str, bytes]) -> bool:
    try:
        return read_certificate(data.get("tls.crt", b"")).is_ca
    except PkiError:
        return False


# A certificate may change again immediately, e.g. when the issued certificate replaces a temporary one.
_DEBOUNCE: Final = timedelta(seconds=0.25)
_FIRST_RETRY, _LONGEST_RETRY = timedelta(seconds=1), timedelta(seconds=300)
_BY_TARGET: Final = "target"
_ATTEMPTS: Final = 5
_COMPONENT: Final = "certwright-export"
# Changes within this time are written together.
_TOGETHER_S = 0.05
# Certificates whose files are written at the same time: each waits for the disk several times.
_AT_ONCE: Final = 16
# How often the files are compared with what was written, and failed writes are tried again.
_RESCAN_S = 5.0
# A scan takes at most this part of the time, however many files there are.
_REST_PER_SCAN = 50


class _Change(msgspec.Struct, frozen=True):
    """The version of a certificate's files for which the command has not succeeded, and its failed runs."""

    version: str
    failures: int = 0


class OnChange:
    """Runs the command for each certificate whose files were replaced, one run at a time. A failed run is
    logged, and repeated with exponential backoff.

    Success is recorded on the disk, so a restart repeats only the rest. After a crash between the command's
    end and the record, the command runs again.
    """

    def __init__(
        self, exporter: Exporter, command: str, clock: Clock, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self._exporter = exporter
        self._command = command
        self._clock = clock
        self._timeout_s = timeout_s
        self._pending: dict[ObjectKey, _Change] = {}
        self._queue: WorkQueue[ObjectKey] = WorkQueue(clock)
        self._ran = asyncio.Event()

    def add(self, key: ObjectKey, version: str) -> None:
        """Run the command for this version soon, unless it is pending already."""
        known = self._pending.get(key)
        if known is None or known.version != version:
            self._pending[key] = _Change(version)
            self._queue.add_after(key, _DEBOUNCE)

    async def run(self) -> None:
        """Run the command whenever it is due, for ever."""
        await Controller("on-change", self._reconcile, self._queue, workers=1).run()

    async def wait_tried(self) -> bool:
        """Return when the command has run for each change added so far; whether all runs have succeeded."""
        while any(not change.failures for change in self._pending.values()):
            self._ran.clear()
            await self._ran.wait()
        return not self._pending

    async def _reconcile(self, key: ObjectKey) -> Result:
        change = self._pending.get(key)
        if change is None:
            return Result()
        folder = folder_of(self._exporter.root, *key).absolute()
        variables = {"CERTWRIGHT_CERTIFICATE": str(key), "CERTWRIGHT_DIR": str(folder)}
        retry_at = None
        try:
            await run_hook(self._command, variables, timeout_s=self._timeout_s)
            await asyncio.to_thread(self._exporter.mark_hook_done, *key, change.version)
        except (HookError, OSError) as error:
            # After a change during the run it runs again for the new files.
            if self._pending[key] is change:
                wait = doubled(_FIRST_RETRY, change.failures + 1, cap=_LONGEST_RETRY)
                retry_at = self._clock.now() + wait
                self._pending[key] = _Change(change.version, change.failures + 1)
            cause = str(error)
            _event(logging.WARNING, "--on-change command failed", key, nextAttempt=retry_at, cause=cause)
        else:
            _event(logging.INFO, "--on-change command succeeded", key)
            if self._pending[key] is change:
                del self._pending[key]
        self._ran.set()
        return Result(wake_at=retry_at)


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The directory, whether private keys of CAs are exported, and the command for changed certificates
    (None: there is none). `reserves_late`: the directory is reserved when the first file is written."""

    reserves_late: bool
    root: Path
    with_ca_keys: bool
    command: str | None
    timeout_s: float


class _Named(Struct, frozen=True):
    """The name of the Secret of a Certificate."""

    secret_name: str = ""


class _Target(Struct, frozen=True):
    """The identity of a Certificate, and the name of its Secret."""

    metadata: Identity = Identity()
    spec: _Named = _Named()

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.metadata.namespace, self.metadata.name)

    @property
    def secret(self) -> ObjectKey:
        return ObjectKey(self.metadata.namespace, self.spec.secret_name)


_TARGETS: Final[Kind[_Target]] = msgspec.structs.replace(cast(AnyKind, CERTIFICATES), type=_Target)


class Exports:
    """The export directory of this process: the certificates of a server, of all namespaces, as files. Use it
    within `opened`."""

    def __init__(self, settings: ExportSettings, clock: Clock | None = None) -> None:
        self.root = settings.root
        self.on_replaced: Callable[[], None] = lambda: None
        """Called when files have been replaced."""
        self._reserves_late = settings.reserves_late
        self._clock = clock = clock or SystemClock()
        self._exporter = Exporter(settings.root, with_ca_keys=settings.with_ca_keys)
        self._on_change: OnChange | None = None
        if settings.command is not None:
            self._on_change = OnChange(self._exporter, settings.command, clock, timeout_s=settings.timeout_s)
        # Why the files of a certificate could not be written.
        self._failing: dict[ObjectKey, str] = {}
        self._replaced: set[ObjectKey] = set()
        self._due: set[ObjectKey] = set()
        self._changed, self._is_settled = asyncio.Event(), asyncio.Event()
        self._turns: WeakValueDictionary[ObjectKey, asyncio.Lock] = WeakValueDictionary()
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Exports]:
        """Reserve the directory, and run the command for what is exported until the end. Raises
        `ExportFailed`."""
        tasks = TaskSet()
        if not self._reserves_late:
            self._exporter.lock()
        if self._on_change is not None:
            tasks.start(self._on_change.run(), name="--on-change")
        try:
            yield self
        finally:
            await tasks.close()
            self._exporter.release()

    def follow(self, client: Client) -> Coroutine[Any, Any, None]:
        """Export the certificates of this server as they change, for ever."""
        self._client = client
        self._recorder = Recorder(client, self._clock, _COMPONENT)
        self._certificates: Informer[_Target] = Informer(
            client, _TARGETS, self._clock, indexers={_BY_TARGET: lambda target: (str(target.secret),)}
        )
        self._certificates.add_handler(lambda _old, new: self._add(() if new is None else (new.key,)))
        secrets: Informer[Identified] = Informer(client, identities(SECRETS), self._clock, metadata_only=True)

        def secret_changed(_old: Identified | None, new: Identified | None) -> None:
            if new is not None:
                key = ObjectKey(new.metadata.namespace, new.metadata.name)
                self._add(self._certificates.cache.keys_by_index(_BY_TARGET, str(key)))

        secrets.add_handler(secret_changed)
        return self._follow(secrets)

    async def write_now(self, keys: Iterable[ObjectKey]) -> None:
        """Write the files of these certificates as their Secrets are on the server. Raises
        `ExportFailed`."""
        for key in keys:
            try:
                target = await self._client.get(_TARGETS, key.name, key.namespace)
            except NotFound:
                continue
            await self._write(target)

    async def settled(self) -> set[ObjectKey]:
        """Return when what has changed is written: the certificates whose files were replaced since the last
        call."""
        await self._is_settled.wait()
        replaced, self._replaced = self._replaced, set()
        return replaced

    def folder(self, key: ObjectKey) -> Path:
        """The folder of the certificate's files."""
        return folder_of(self.root, *key)

    def names(self, key: ObjectKey) -> list[str]:
        """The names of the certificate's files; empty before the first."""
        return self._exporter.names(*key)

    async def wait_command(self) -> bool:
        """Return when the command has run for each change so far; whether all runs have succeeded."""
        return self._on_change is None or await self._on_change.wait_tried()

    async def _follow(self, secrets: Informer[Identified]) -> None:
        tasks = TaskSet()
        tasks.start(self._certificates.run(), name="export of certificates")
        tasks.start(secrets.run(), name="export of secrets")
        tasks.start(self._rescan(), name="rescan of the export")
        try:
            await self._certificates.synced.wait()
            while True:
                if not self._due:
                    self._is_settled.set()
                await self._changed.wait()
                await self._clock.sleep(_TOGETHER_S)
                self._changed.clear()
                due, self._due = self._due, set()
                targets = []
                for key in sorted(due):
                    if (target := self._certificates.cache.get(key)) is not None:
                        targets.append(target)
                    else:
                        self._failing.pop(key, None)
                        self._exporter.forget(key)
                await asyncio.gather(*map(self._write, targets))
        finally:
            await tasks.close()
            await self._recorder.close()

    async def _rescan(self) -> None:
        """Write files again that were changed, deleted or not writable, for ever."""
        while True:
            began = self._clock.monotonic()
            self._add((*self._failing, *await asyncio.to_thread(self._exporter.changed_by_others)))
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(_RESCAN_S, _REST_PER_SCAN * took))

    def _add(self, keys: Iterable[ObjectKey]) -> None:
        self._due.update(keys)
        if self._due:
            self._is_settled.clear()
            self._changed.set()

    async def _write(self, target: _Target) -> None:
        # One task at a time reads and writes those of a certificate, so that no older Secret overwrites a
        # newer one.
        async with self._turns.setdefault(target.key, asyncio.Lock()), self._at_once:
            await self._write_files(target)

    async def _write_files(self, target: _Target) -> None:
        """Write the files of the certificate. A failure is logged and retried. A Secret whose key does not
        fit its certificate replaces no files, and an Event says so."""
        key, name = target.key, target.spec.secret_name
        try:
            secret = await self._client.get(SECRETS, name, key.namespace)
        except NotFound:
            return
        except ApiError as error:
            self._fail(key, f"its Secret cannot be read: {error}")
            return
        owner = secret.metadata.annotations.get(CERTIFICATE_NAME, key.name)
        if owner != key.name or not secret.data.get("tls.crt"):
            # The Secret has no certificate, or another Certificate's with the same Secret.
            self._failing.pop(key, None)
            return
        self._exporter.lock()
        # A server that reads a wrong pair does not start, not even for its other sites.
        if problem := await asyncio.to_thread(pair_problem, secret.data):
            message = f"Secret {name}: {problem}; the exported files stay as they are"
            if self._fail(key, message):
                # An Event needs only the identity.
                certificate = cast(Object, target)
                self._recorder.event(CERTIFICATES, certificate, "Warning", "NotExported", message)
            return
        try:
            result = await asyncio.to_thread(self._exporter.write, *key, secret.data)
        except UnsafeName as error:
            self._fail(key, str(error))
            return
        except OSError as error:
            self._fail(key, f"{error.filename or self.root}: {error.strerror or error}")
            return
        self._failing.pop(key, None)
        await self._report_exported(key, read_certificate(secret.data["tls.crt"]).not_after)
        directory = str(self.folder(key))
        if result.removed_ca_key:
            message = "private key of a CA removed; --export-ca-keys keeps it"
            _event(logging.WARNING, message, key, directory=directory)
        if result.changed:
            files = ",".join(result.changed)
            _event(logging.INFO, "files replaced", key, directory=directory, files=files)
            self._replaced.add(key)
            self.on_replaced()
        if self._on_change is not None and not result.is_hook_done:
            self._on_change.add(key, result.version)

    async def _report_exported(self, key: ObjectKey, not_after: datetime) -> None:
        """Set the condition `Exported`, which clients wait for. The next issuance removes it."""
        expiry = f"{not_after:%Y-%m-%d %H:%M:%S} UTC"
        message = f"the exported files contain the certificate that expires on {expiry}"
        for _ in range(_ATTEMPTS):
            try:
                certificate = await self._client.get(CERTIFICATES, key.name, key.namespace)
                existing, meta = certificate.status.conditions, certificate.metadata
                before = conditions.find(existing, reasons.EXPORTED)
                if conditions.is_true(existing, reasons.ISSUING):
                    return  # Its end is a change of the Certificate, and written here again.
                if before is not None and before.message == message:
                    return
                exported = Condition(
                    type=reasons.EXPORTED,
                    status="True",
                    reason=reasons.EXPORTED,
                    message=message,
                    observed_generation=meta.generation,
                )
                changed = conditions.with_condition(existing, exported, self._clock.now())
                patch = {
                    "metadata": {"resourceVersion": meta.resource_version},
                    "status": {"conditions": msgspec.to_builtins(changed)},
                }
                await self._client.patch(CERTIFICATES, key.name, key.namespace, patch, subresource="status")
            except Conflict:
                continue  # A controller wrote at the same moment.
            except (ApiError, Unreachable) as error:
                _log.debug("the condition Exported of Certificate %s was not written: %s", key, error)
            return

    def _fail(self, key: ObjectKey, reason: str) -> bool:
        """Log why the files were not written, and return whether that is new."""
        is_new = self._failing.get(key) != reason
        if is_new:
            message, directory = "files not written; trying again", str(self.folder(key))
            _event(logging.WARNING, message, key, directory=directory, cause=reason)
        self._failing[key] = reason
        return is_new


def _event(level: int, message: str, key: ObjectKey, **values: logs.Value) -> None:
    logs.event(_log, level, message, subject=f"Certificate/{key}", certificate=str(key), **values)
