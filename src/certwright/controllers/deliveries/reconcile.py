"""Deliver one certificate: write its files below the operator's root, run the hook, check the served
certificate.

Only Deliveries whose root the operator of this process has named are processed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.deliveries import permissions
from certwright.controllers.deliveries.cache import (
    at_directory_of,
    directory_of,
    has_failed,
    path_of,
    secret_name_of,
)
from certwright.controllers.deliveries.checks import (
    DELIVERED,
    DEPLOYED,
    NOT_CHECKED,
    OLD_SERVED,
    Attempts,
    Probe,
    delivered_status,
    deployed,
    failed_status,
)
from certwright.controllers.deliveries.hooks import Change
from certwright.controllers.deliveries.outputs import (
    Source,
    make_files,
    outputs_of,
    read_source,
)
from certwright.controllers.deliveries.permissions import DeliveryOptions, Refused, check
from certwright.controllers.toolbox import Toolbox
from certwright.kit import logs
from certwright.kit.hooks import HookError
from certwright.kit.tls_scan import presented_certificate
from certwright.kit.versioned_files import File, ForeignFile, Read, VersionedFolder, Written
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.api.errors import NotFound
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.controller import Result
from certwright.kube.util.durations import doubled
from certwright.pki.certificates import CertificateFacts
from certwright.resources.delivery import (
    Delivery,
    DeliveryOutput,
    DeliveryStatus,
    Format,
    ServedAt,
    path_parts,
)
from certwright.resources.table import DELIVERIES

_log = logging.getLogger(__name__)

FIRST_RETRY: Final = timedelta(seconds=1)
LONGEST_RETRY: Final = timedelta(minutes=5)
RESCAN: Final = timedelta(seconds=30)
"""How often the files are compared with what was written."""
DAILY: Final = timedelta(days=1)
LONGEST_CHECK_RETRY: Final = timedelta(hours=1)
_CHECK_TIMEOUT_S: Final = 10.0
_ALARM_AT: Final = 3
"""The check, three seconds after the delivery, from which on the old certificate is a problem: a server that
reloads serves it for a moment."""


_PRESENTED: Final[Probe] = partial(presented_certificate, timeout_s=_CHECK_TIMEOUT_S)
RunHook = Callable[[str, Change], Awaitable[None]]
"""Runs the hook of that name. Raises `HookError`."""


class _Inputs(msgspec.Struct, frozen=True):
    """The inputs of a Delivery: the generation of its spec, and the revisions of its Secrets."""

    generation: int | None
    secrets: tuple[str, ...]


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """The last delivery. While the inputs and files are the same, nothing is written."""

    inputs: _Inputs
    names: Sequence[str]
    signature: tuple[object, ...]


class _Retry(Attempts, frozen=True):
    """The failed attempts with the same inputs."""

    inputs: _Inputs


class _Checked(msgspec.Struct, frozen=True):
    """The last check: its certificate and addresses, its failures in a row, and when the next check is
    due."""

    certificate: bytes
    addresses: Sequence[ServedAt]
    failures: int
    due: datetime


class _Job(msgspec.Struct, frozen=True):
    """One Delivery with its inputs, read."""

    delivery: Delivery
    place: VersionedFolder
    source: Source
    inputs: _Inputs

    @property
    def key(self) -> ObjectKey:
        return self.delivery.metadata.key

    @property
    def shown(self) -> str:
        """The place as users know it; the root's own path is the operator's."""
        return path_of(self.delivery)


class DeliveryReconciler:
    """Reconciles Deliveries, one at a time. `probe` reads the certificate of a server."""

    def __init__(
        self,
        informer: Informer[Delivery],
        caches: Caches,
        toolbox: Toolbox,
        options: DeliveryOptions,
        run_hook: RunHook,
        *,
        probe: Probe = _PRESENTED,
    ) -> None:
        self.dependents: Dependents[ObjectKey] = Dependents()
        self._informer, self._caches, self._toolbox = informer, caches, toolbox
        self._options, self._run_command, self._probe = options, run_hook, probe
        self._status = toolbox.status_of(informer)
        self._known: dict[ObjectKey, _Known] = {}
        self._retries: dict[ObjectKey, _Retry] = {}
        self._checked: dict[ObjectKey, _Checked] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def reconcile(self, key: ObjectKey) -> Result:
        """Deliver, if anything has changed; run again when something is due. Raises what API requests
        raise."""
        delivery = self._informer.cache.get(key)
        if delivery is None or delivery.metadata.deletion_timestamp is not None:
            self.dependents.keep_only(key, ())
            for memory in (self._known, self._retries, self._checked):
                memory.pop(key, None)
            return Result()
        if delivery.spec.root not in self._options.roots:
            return Result()
        try:
            job = await self._read(delivery)
        except Refused as refusal:
            await self._fail(delivery, refusal, None)
            return Result(wake_at=self._toolbox.now() + LONGEST_RETRY)
        retry = self._retries.get(key)
        if retry is not None and retry.inputs == job.inputs and retry.due > self._toolbox.now():
            return Result(wake_at=retry.due)
        try:
            await self._deliver(job)
        except Refused as refusal:
            failures = retry.failures + 1 if retry is not None and retry.inputs == job.inputs else 1
            wait = doubled(FIRST_RETRY, failures, cap=LONGEST_RETRY)
            retry = self._retries[key] = _Retry(failures, self._toolbox.now() + wait, job.inputs)
            # Without its hook the server may still read the files by itself, or serve the old certificate.
            replaced = job.source.certificate if refusal.reason == permissions.HOOK_FAILED else None
            written = await self._fail(delivery, refusal, retry, replaced)
            if written is not None and replaced is not None:
                await self._check_served(key, written, replaced)
            return Result(wake_at=retry.due)
        self._retries.pop(key, None)
        now, certificate = self._toolbox.now(), job.source.certificate
        written = await self._commit(delivery, delivered_status(delivery, certificate, now))
        if written is None:
            return Result()
        return Result(wake_at=min(now + RESCAN, await self._check_served(key, written, certificate)))

    async def _read(self, delivery: Delivery) -> _Job:
        """Read what the Delivery refers to. Raises `Refused`."""
        spec, root = delivery.spec, self._options.roots[delivery.spec.root]
        check(delivery, root, self._options)
        self._check_path(delivery)
        name = await secret_name_of(delivery, self._caches)
        if name is None:
            assert spec.certificate_ref is not None  # `check` has refused a Delivery without references.
            why = f"Certificate {spec.certificate_ref.name} does not exist; create it"
            raise Refused(permissions.NOT_FOUND, why)
        secret = await self._secret(delivery, name)
        used, passwords = {secret.metadata.name: secret}, {}
        for output in spec.outputs:
            if (ref := output.password_secret_ref) is not None:
                used[ref.name] = referenced = await self._secret(delivery, ref.name)
                if not referenced.data.get(ref.key):
                    raise Refused(
                        permissions.NOT_FOUND, f"Secret {ref.name} has no {ref.key}; add the password"
                    )
                passwords[output.name] = referenced.data[ref.key].decode(errors="replace")
        keys = [dependency.metadata.key for dependency in used.values()]
        self.dependents.keep_only(delivery.metadata.key, keys)
        versions = tuple(
            f"{dependency.metadata.uid}:{dependency.metadata.resource_version}"
            for dependency in used.values()
        )
        return _Job(
            delivery,
            VersionedFolder(root.directory, path_parts(spec.path) or ()),
            read_source(secret, passwords),
            _Inputs(delivery.metadata.generation, versions),
        )

    async def _secret(self, delivery: Delivery, name: str) -> Secret:
        key = ObjectKey(delivery.metadata.namespace, name)
        self.dependents.add(delivery.metadata.key, key)
        secret = await self._caches.secrets.get(key)
        if secret is None:
            raise Refused(permissions.NOT_FOUND, f"Secret {name} does not exist yet; it is waited for")
        return secret

    def _check_path(self, delivery: Delivery) -> None:
        """Check that the path belongs to this Delivery: to the oldest Delivery that has delivered there, else
        to the oldest that still may. Raises `Refused`."""
        others = [
            other
            for other in at_directory_of(delivery, self._informer, self._options)
            if other.metadata.uid == delivery.metadata.uid
            or self._has_delivered(other)
            or not has_failed(other)
        ]
        first = min(others, key=lambda other: not self._has_delivered(other), default=delivery)
        if first.metadata.uid != delivery.metadata.uid:
            is_near = first.metadata.namespace == delivery.metadata.namespace
            which = f"Delivery {first.metadata.name}" if is_near else "an older Delivery"
            raise Refused(
                permissions.PATH_IN_USE,
                f"spec.path: {which} delivers to {path_of(delivery)}; choose another path",
            )

    def _has_delivered(self, delivery: Delivery) -> bool:
        return delivery.status.current is not None or delivery.metadata.key in self._known

    async def _deliver(self, job: _Job) -> None:
        """Write the files and run the hook, where needed. Raises `Refused`."""
        known = self._known.get(job.key)
        is_same = known is not None and known.inputs == job.inputs
        if known is not None and is_same:
            signature = await asyncio.to_thread(job.place.sign, known.names)
            if signature == known.signature:
                return
        outputs = outputs_of(job.delivery.spec, job.source)
        # Of a Delivery that has just been deleted, the files may still be written.
        directory = directory_of(job.delivery, self._options)
        async with self._turns.setdefault(directory, asyncio.Lock()):
            self._check_path(job.delivery)
            written = await self._write(job, outputs)
        if written.changed:
            message = f"files in {job.shown} replaced: {', '.join(written.changed)}"
            files = ",".join(written.changed)
            _event(logging.INFO, "files delivered", job.delivery, path=job.shown, files=files)
            self._toolbox.recorder.event(DELIVERIES, job.delivery, "Normal", permissions.DELIVERED, message)
        if job.delivery.spec.hook and not written.is_hook_done:
            await self._run_hook(job, outputs, written.version)
        self._known[job.key] = _Known(
            inputs=job.inputs,
            names=[output.name for output in outputs],
            signature=written.signature,
        )

    async def _write(self, job: _Job, outputs: Sequence[DeliveryOutput]) -> Written:
        def make(read: Read) -> Mapping[str, File]:
            return make_files(outputs, job.source, read, self._toolbox.now())

        try:
            return await asyncio.to_thread(job.place.write, make)
        except ForeignFile as name:
            raise Refused(
                permissions.NOT_ALLOWED,
                f"{name} exists there and is not from a Delivery; remove it, or deliver to another path",
            ) from None
        except OSError as error:
            raise Refused(
                permissions.WRITE_FAILED,
                f"files in {job.shown} cannot be written: {error.strerror or error}",
                f"{error.filename or job.place.path}: {error.strerror or error}",
            ) from error

    async def _run_hook(self, job: _Job, outputs: Sequence[DeliveryOutput], version: str) -> None:
        name, folder = job.delivery.spec.hook, job.place.path
        combined = tuple(folder / output.name for output in outputs if output.format == Format.COMBINED)
        try:
            await self._run_command(name, Change(job.key, folder, combined))
            await asyncio.to_thread(job.place.mark_hook_done, version)
        except (HookError, OSError) as error:
            raise Refused(
                permissions.HOOK_FAILED,
                f"files in {job.shown} are current, but hook {name} failed; the log of certwright has its "
                "output",
                f"hook {name} failed: {error}",
            ) from error
        _event(logging.INFO, "hook succeeded", job.delivery, hook=name)

    async def _check_served(
        self, key: ObjectKey, delivery: Delivery, certificate: CertificateFacts
    ) -> datetime:
        """Write the condition `Deployed`, if a check is due; returns when the next is."""
        now, last, addresses = self._toolbox.now(), self._checked.get(key), delivery.spec.served_at
        if not addresses:
            return datetime.max.replace(tzinfo=UTC)
        before = conditions.find(delivery.status.conditions, DEPLOYED)
        if before is not None and before.status == "Unknown" and before.reason != NOT_CHECKED:
            # Set by the leader, which had not seen this process for a while.
            last = None
        if last is not None and (last.certificate, last.addresses) != (certificate.der, addresses):
            last = None
        if last is not None and last.due > now:
            return last.due
        condition = await deployed(delivery, certificate, self._options, self._probe)
        failures = 0
        wait = DAILY
        if condition.status != "True":
            failures = last.failures + 1 if last is not None else 1
            wait = doubled(FIRST_RETRY, failures, cap=LONGEST_CHECK_RETRY)
        self._checked[key] = _Checked(certificate.der, addresses, failures, now + wait)
        if condition.reason == OLD_SERVED and failures < _ALARM_AT:
            return now + wait
        if before is None or before.status != condition.status:
            is_served = condition.status == "True"
            level = logging.INFO if is_served else logging.WARNING
            message = "delivery served" if is_served else "delivery not served"
            _event(level, message, delivery, reason=condition.reason, cause=condition.message)
        changed = conditions.with_condition(delivery.status.conditions, condition, now)
        await self._commit(delivery, msgspec.structs.replace(delivery.status, conditions=changed))
        return now + wait

    async def _fail(
        self,
        delivery: Delivery,
        refusal: Refused,
        retry: Attempts | None,
        replaced: CertificateFacts | None = None,
    ) -> Delivery | None:
        before = conditions.find(delivery.status.conditions, DELIVERED)
        is_new = before is None or before.message != refusal.message
        if is_new:
            self._toolbox.recorder.event(DELIVERIES, delivery, "Warning", refusal.reason, refusal.message)
        if is_new or retry is not None:
            _event(
                logging.WARNING,
                "delivery failed",
                delivery,
                reason=refusal.reason,
                attempts=retry.failures if retry is not None else None,
                nextAttempt=retry.due if retry is not None else None,
                cause=refusal.details or refusal.message,
            )
        status = failed_status(delivery, refusal, retry, self._toolbox.now(), replaced=replaced)
        return await self._commit(delivery, status)

    async def _commit(self, delivery: Delivery, status: DeliveryStatus) -> Delivery | None:
        try:
            return await self._status.commit(
                DELIVERIES, delivery, msgspec.structs.replace(delivery, status=status)
            )
        except NotFound:
            return None


def _event(level: int, message: str, delivery: Delivery, **values: logs.Value) -> None:
    key = delivery.metadata.key
    logs.event(_log, level, message, subject=f"Delivery/{key}", delivery=str(key), **values)
