"""Leader election by a Lease, as client-go's `leaderelection` does it.

A Lease names its holder and how long the others have to wait after its last renewal. Each candidate measures
that time by its own clock, from the moment at which IT saw the Lease change; the times written in the Lease
are for people. So clock skew does no harm.

    acquire ──held──▶ keep ──lost──▶ acquire …
                        └─ release (the next holder does not wait)

A holder that could not renew for `renew_deadline` has lost the Lease, although the others wait for
`duration`: in the time between, its last requests arrive.

A process restarted with the identity of its predecessor takes over its Lease immediately. Two processes that
run with one identity at the same time are detected: a Lease that names its holder, but was not written by it,
belongs to another process.

Source: Kubernetes documentation, "Leases"; client-go `tools/leaderelection`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from certwright.kube.api.core import LEASES, Lease, LeaseSpec
from certwright.kube.api.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unreachable,
)
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.cache import parse_revision
from certwright.kube.client.rest import JSON_PATCH, Client
from certwright.kube.client.transport import CheckingTransport, Transport
from certwright.kube.runtime.lease_watch import LeaseWatch, within
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Response

# Without it, candidates that poll at the same moments would all try together; client-go's JitterFactor.
JITTER = 0.2


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Lease timing: the duration; the renew deadline, after which the holder gives up; the period of renewals
    and of other candidates' polls. The defaults are cert-manager's."""

    duration: timedelta = timedelta(seconds=60)
    renew_deadline: timedelta = timedelta(seconds=40)
    retry_period: timedelta = timedelta(seconds=15)

    def check(self) -> None:
        """Raises `ValueError`, with a sentence, for terms under which two processes could own a Lease at the
        same time."""
        if self.retry_period <= timedelta(0):
            raise ValueError("the retry period must be longer than 0s")
        if self.renew_deadline <= self.retry_period * (1 + JITTER):
            raise ValueError(
                "the renew deadline must be longer than 1.2 retry periods, so that one renewal may fail"
            )
        if self.duration <= self.renew_deadline:
            raise ValueError("the lease duration must be longer than the renew deadline")
        if self.duration < timedelta(seconds=1):
            raise ValueError("the lease duration must be one second at least")


DEFAULT_TIMING = LeaseTiming()


_log = logging.getLogger(__name__)

# An API server that is stopped, or cut off, must not use up a whole renewal period for one request.
_REQUEST_S = 10.0
_REMEMBERED = 8
_CONFLICTS = 5


class LeaderElector:
    """A candidate for the Lease `namespace`/`name` with a unique name (`identity`), as client-go's
    LeaderElector.

    Other requests MUST NOT delay the requests of `client`: a renewal that waits in a queue comes too late.
    `jitter` returns numbers from 0 to 1. With `is_group` several processes share the identity and the Lease.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming = DEFAULT_TIMING,
        jitter: Callable[[], float] = random.random,
        is_group: bool = False,
    ) -> None:
        timing.check()
        self.name = name
        self.identity = identity
        self._namespace = namespace
        self._client = client
        self._clock = clock
        self._timing = timing
        self._jitter = jitter
        self._seen: Lease | None = None
        self._mark: tuple[str, int] | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._free_since: float | None = None
        self._is_group = is_group
        self._written = deque[str](maxlen=_REMEMBERED)
        self._has_twin = False
        self._may_patch = True
        self.was_released = False
        """Whether another holder has released the Lease since this process began to observe it."""
        self.tried = asyncio.Event()
        """Set after the first request for the Lease, whatever the response."""
        self.changed = asyncio.Event()
        """Set when another process has changed the holder, or a member has called `notify_group`."""

    @property
    def place(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self._namespace}/{self.name}"

    @property
    def is_held(self) -> bool:
        """Whether this process certainly owns the Lease at this moment."""
        return self.left_s > 0

    @property
    def holder(self) -> str:
        """The holder, as last seen; empty without a holder, or before the first read."""
        return (self._seen.spec.holder_identity or "") if self._seen is not None else ""

    @property
    def needs_renewal(self) -> bool:
        """Whether a retry period has passed since the last renewal, or another holder was observed."""
        fresh_s = (self._timing.renew_deadline - self._timing.retry_period).total_seconds()
        return self.holder != self.identity or self.left_s <= fresh_s

    @property
    def release_requested_by(self) -> str:
        """The candidate that requested the holder's release of the Lease; empty without one."""
        wish = self._seen.spec.preferred_holder if self._seen is not None else None
        return wish if wish and wish != self.identity else ""

    @property
    def has_requested_release(self) -> bool:
        """Whether this candidate requested the release."""
        return self._seen is not None and self._seen.spec.preferred_holder == self.identity

    @property
    def free_for_s(self) -> float | None:
        """For how long the Lease has been free; None with a holder, or before the first read."""
        return None if self._free_since is None else self._clock.monotonic() - self._free_since

    @property
    def expires_in_s(self) -> float:
        """Seconds until another holder's Lease expires, unless renewed; infinite without a holder."""
        if self._seen is None or not self._is_held_by_other():
            return math.inf
        return self._seen_at + (self._seen.spec.lease_duration_seconds or 0) - self._clock.monotonic()

    async def attempt(self, patience_s: float) -> None:
        """Acquire or renew the Lease once, if it is free or ours, within the given seconds. Sets `is_held`;
        an error is logged."""
        if problem := await self._try(patience_s):
            _log.warning("the lease %s/%s: %s", self._namespace, self.name, problem)

    async def join(self, patience_s: float) -> bool:
        """Acquire or renew the Lease for a group, by a write that begins now; False: another identity holds
        the Lease, or it is unreachable. A conflict with another member's write is retried."""
        begun = self._clock.monotonic()
        for _ in range(_CONFLICTS):
            await self.attempt(patience_s)
            if self._renewed_at is not None and self._renewed_at >= begun:
                return True
            if self._seen is not None and self._is_held_by_other():
                return False
        return False

    async def follow(self) -> None:
        """Watch the Lease of a group until cancelled: sets `changed` without polling."""
        await LeaseWatch(
            self._client,
            self._clock,
            namespace=self._namespace,
            name=self.name,
            revision=lambda: self._seen.metadata.resource_version if self._seen is not None else "",
            on_change=self._on_change,
            jitter=self._jitter,
        ).run()

    def _on_change(self, lease: Lease | None) -> None:
        if lease is None:
            self._seen = None
            self.changed.set()
        elif self._seen is None or _revision(lease) > _revision(self._seen):
            self._note(lease)

    async def notify_group(self) -> None:
        """Have the other members of the group check their Leases now. Raises `ApiError`, `Unreachable`."""
        for _ in range(_CONFLICTS):
            lease = await self._client.get(LEASES, self.name, self._namespace)
            if lease.spec.holder_identity != self.identity:
                return
            spec = msgspec.structs.replace(
                lease.spec, lease_transitions=(lease.spec.lease_transitions or 0) + 1
            )
            try:
                lease = await self._client.update(LEASES, msgspec.structs.replace(lease, spec=spec))
            except Conflict:
                continue
            self._note_own(lease)
            return

    async def observe(self, patience_s: float) -> None:
        """Read the holder, without acquiring the Lease. Raises `ApiError`, `Unreachable`."""
        if await within(self._clock, min(patience_s, _REQUEST_S), self._is_free()):
            self._free_since = self._clock.monotonic() if self._free_since is None else self._free_since
        else:
            self._free_since = None

    async def request_release(self) -> None:
        """Request the holder's release (`spec.preferredHolder`). Raises `ApiError`, `Unreachable`."""
        assert self._seen is not None
        spec = msgspec.structs.replace(self._seen.spec, preferred_holder=self.identity)
        await self._client.update(LEASES, msgspec.structs.replace(self._seen, spec=spec))

    async def acquire(self) -> None:
        """Return when the Lease is ours. Logs each new cause of failure once, and the holder for whose
        release it waits."""
        logged = holder = ""
        while True:
            problem = await self._try(_REQUEST_S)
            self.tried.set()
            if self.is_held:
                _log.debug("%s holds the lease %s/%s", self.identity, self._namespace, self.name)
                return
            if problem and problem != logged:
                _log.warning("the lease %s/%s: %s; trying again", self._namespace, self.name, problem)
            if not problem and self.holder != holder:
                _log.debug("waiting for the lease %s: %s holds it", self.place, self.holder or "no replica")
            logged, holder = problem, self.holder
            await self._clock.sleep(min(self._pause_s(), self.expires_in_s))

    async def keep(self) -> None:
        """Renew, until no renewal has succeeded for `renew_deadline` or another candidate holds the Lease."""
        problem, period_s = "", self._timing.retry_period.total_seconds()
        while self.is_held:
            # Sooner after a failure, so that a request without a response leaves time for another; not beyond
            # the end of the Lease.
            await self._clock.sleep(min(period_s / 3 if problem else period_s, self.left_s))
            if self.is_held:
                problem = await self._try(self.left_s)
        reason = problem or f"{self.holder or 'no replica'} holds it"
        _log.warning("the lease %s/%s was lost: %s", self._namespace, self.name, reason)
        self._renewed_at = None

    async def release(self) -> None:
        """Release the Lease immediately, if it is ours. If that fails, the Lease is free after its
        duration."""
        if not self.is_held or self._seen is None:
            return
        self._renewed_at = None
        self._free_since = self._clock.monotonic()
        try:
            await self._write_release(self._seen)
        except (ApiError, Unreachable) as error:
            _log.info("the lease %s/%s could not be released: %s", self._namespace, self.name, error)

    async def _write_release(self, lease: Lease) -> None:
        try:
            await self._client.update(LEASES, _released(lease, self._clock.now()))
        except Conflict:
            if self._is_group:
                # Another member has joined.
                return
            # Our last renewal may have been interrupted after the server had carried it out.
            lease = await self._client.get(LEASES, self.name, self._namespace)
            if lease.spec.holder_identity == self.identity:
                await self._client.update(LEASES, _released(lease, self._clock.now()))

    @property
    def left_s(self) -> float:
        """Seconds for which the Lease is certainly ours; 0 or less if another process may hold it."""
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self._timing.renew_deadline.total_seconds() - self._clock.monotonic()

    def _pause_s(self) -> float:
        return self._timing.retry_period.total_seconds() * (1 + JITTER * self._jitter())

    async def _try(self, patience_s: float) -> str:
        """Acquire or renew the Lease, if it is free or ours; returns an error text. A request without a
        response is given up after `patience_s`."""
        # BEFORE the request: its duration must not count in our favour.
        begun = self._clock.monotonic()
        try:
            if await within(self._clock, min(patience_s, _REQUEST_S), self._try_acquire()):
                self._renewed_at = begun
            elif self.holder not in ("", self.identity):
                self._renewed_at = None
        except (Conflict, AlreadyExists):
            # Another candidate was quicker: the next read shows which. There is never more than one holder.
            self._seen_at, self._seen = begun, None
            return ""
        except (ApiError, Unreachable) as error:
            return str(error)
        return ""

    async def _try_acquire(self) -> bool:
        if self.is_held and self._seen is not None and self.holder == self.identity:
            try:
                # Unchanged since our write: one request instead of two.
                return await self._write(self._seen)
            except Conflict:
                self._seen = None
        try:
            lease = await self._client.get(LEASES, self.name, self._namespace)
            self._check_twin(lease)
            self._note(lease)
        except NotFound:
            meta = ObjectMeta(name=self.name, namespace=self._namespace)
            lease = Lease(metadata=meta, spec=self._spec(LeaseSpec()))
            self._note_own(await self._client.create(LEASES, lease))
            return True
        assert self._seen is not None
        return not self._is_held_by_other() and await self._write(self._seen)

    def _check_twin(self, lease: Lease) -> None:
        """Detect another process that holds the Lease under our identity: this process has not written the
        Lease."""
        is_ours = lease.spec.holder_identity == self.identity
        if self._is_group or not is_ours or self._renewed_at is None:
            return
        if (lease.spec.renew_time or "") not in self._written:
            self._has_twin, self._renewed_at = True, None
            _log.error(
                "the lease %s was taken by another process with the identity %s, which this one has as well: "
                "nothing is changed from here until that one ends; give each replica its own --identity",
                self.place,
                self.identity,
            )

    async def _is_free(self) -> bool:
        try:
            self._note(await self._client.get(LEASES, self.name, self._namespace))
        except NotFound:
            return True
        return not self._is_held_by_other()

    async def _write(self, lease: Lease) -> bool:
        # With the resourceVersion that was read: of several candidates, one succeeds.
        mine = msgspec.structs.replace(lease, spec=self._spec(lease.spec))
        together = self._is_group and self._may_patch and lease.spec.holder_identity == self.identity
        self._note_own(await (self._renew_together(mine) if together else self._client.update(LEASES, mine)))
        self._has_twin = self.was_released = False
        return True

    def _spec(self, old: LeaseSpec) -> LeaseSpec:
        spec = _renewed(old, self.identity, self._timing.duration, self._clock.now())
        self._written.append(spec.renew_time or "")
        return spec

    async def _renew_together(self, mine: Lease) -> Lease:
        """Renew a group's Lease, whatever other members write meanwhile. Raises `Conflict` if another holder
        has it."""
        patch = _renewal_patch(mine.spec)
        try:
            return await self._client.patch(
                LEASES, self.name, self._namespace, patch, content_type=JSON_PATCH
            )
        except Invalid as error:
            raise Conflict(str(error)) from None
        except Forbidden:
            # A role without the verb `patch`.
            self._may_patch = False
            return await self._client.update(LEASES, mine)

    def _note_own(self, lease: Lease) -> None:
        """As `_note`, after a write of this process."""
        self._mark = _mark(lease.spec)
        self._note(lease)

    def _note(self, lease: Lease) -> None:
        if self._mark not in (None, _mark(lease.spec)):
            self.changed.set()
        self._mark = _mark(lease.spec)
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = self._clock.monotonic()
        if lease.spec.holder_identity:
            self.was_released = False
        elif self._had_other_holder(lease):
            self.was_released = lease.spec.preferred_holder in (None, "", self.identity)
        self._seen = lease

    def _had_other_holder(self, free: Lease) -> bool:
        """Whether another holder was seen, or has come and gone since the Lease was last seen free."""
        if self._seen is None:
            return self._free_since is not None
        former = self._seen.spec.holder_identity
        return former != self.identity if former else self._seen.spec != free.spec

    def _is_held_by_other(self) -> bool:
        assert self._seen is not None
        spec = self._seen.spec
        if not spec.holder_identity or (spec.holder_identity == self.identity and not self._has_twin):
            return False
        lasts_s = spec.lease_duration_seconds or 0
        return self._clock.monotonic() < self._seen_at + lasts_s


def _revision(lease: Lease) -> int:
    return parse_revision(lease.metadata.resource_version)


def format_micro_time(moment: datetime) -> str:
    """`2026-01-02T03:04:05.000006Z`. `moment` must be aware.

    Go reads a MicroTime with the layout `2006-01-02T15:04:05.000000Z07:00` and refuses any other number of
    digits, so these fields are text in our structs.

    Source: apimachinery `pkg/apis/meta/v1/micro_time.go`.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _renewed(old: LeaseSpec, identity: str, duration: timedelta, moment: datetime) -> LeaseSpec:
    """`old`, acquired or renewed by `identity` at `moment`."""
    now = format_micro_time(moment)
    is_ours = old.holder_identity == identity
    changes = 0 if old.holder_identity is None else (old.lease_transitions or 0) + (not is_ours)
    return msgspec.structs.replace(
        old,
        holder_identity=identity,
        lease_duration_seconds=int(duration.total_seconds()),
        acquire_time=old.acquire_time if is_ours else now,
        renew_time=now,
        lease_transitions=changes,
        preferred_holder=old.preferred_holder if is_ours else None,
    )


def _renewal_patch(spec: LeaseSpec) -> list[dict[str, Any]]:
    """JSON patch (RFC 6902) that renews as `spec` does, and fails unless `spec`'s holder has the Lease."""
    return [
        {"op": "test", "path": "/spec/holderIdentity", "value": spec.holder_identity},
        {"op": "add", "path": "/spec/renewTime", "value": spec.renew_time},
        {"op": "add", "path": "/spec/leaseDurationSeconds", "value": spec.lease_duration_seconds},
    ]


def _released(lease: Lease, moment: datetime) -> Lease:
    """`lease` without a holder."""
    now = format_micro_time(moment)
    spec = msgspec.structs.replace(
        lease.spec, holder_identity="", lease_duration_seconds=1, renew_time=now, acquire_time=now
    )
    return msgspec.structs.replace(lease, spec=spec)


def _mark(spec: LeaseSpec) -> tuple[str, int]:
    """What changes with the holder, and when a member of a group calls the others."""
    return spec.holder_identity or "", spec.lease_transitions or 0


_READING = ("GET", "HEAD", "OPTIONS")


class FencedTransport:
    """A transport that passes writes only while `may_write`.

    A request that has waited for a connection is checked again, so a process that was stopped for longer than
    its Lease lasts sends nothing afterwards. A request in flight at that moment may still be carried out.
    Writes contain the resourceVersion of their read, so such a write cannot undo changes by the next holder.
    """

    def __init__(self, inner: Transport, may_write: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_write = may_write

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The response. Raises `Unreachable` for a write that is no longer allowed."""
        if method in _READING:
            return await self._inner.request(method, target, headers=headers, body=body)
        self._check()
        if isinstance(self._inner, CheckingTransport):
            return await self._inner.request_if(self._check, method, target, headers=headers, body=body)
        return await self._inner.request(method, target, headers=headers, body=body)

    def _check(self) -> None:
        if not self._may_write():
            raise Unreachable("another replica may have taken over: nothing is changed from here")

    async def close(self) -> None:
        """Close the wrapped transport."""
        await self._inner.close()
