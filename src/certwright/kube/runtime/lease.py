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
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from certwright.kube.api.core import Lease, LeaseSpec
from certwright.kube.api.core_kinds import LEASES
from certwright.kube.api.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.api.micro_time import format_micro_time
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock

_log = logging.getLogger(__name__)

# Without it, candidates that poll at the same moments would all try together; client-go's JitterFactor.
_JITTER = 0.2
# An API server that is stopped, or cut off, must not use up a whole renewal period for one request.
_REQUEST_S = 10.0
_REMEMBERED = 8
_CONFLICTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Lease timing: its duration, the renew deadline after which its holder gives up, and the period of
    renewals and of the others' polls. The defaults are cert-manager's."""

    duration: timedelta = timedelta(seconds=60)
    renew_deadline: timedelta = timedelta(seconds=40)
    retry_period: timedelta = timedelta(seconds=15)

    def check(self) -> None:
        """Raises `ValueError`, with a sentence, for terms under which two processes could own a Lease at the
        same time."""
        if self.retry_period <= timedelta(0):
            raise ValueError("the retry period must be longer than 0s")
        if self.renew_deadline <= self.retry_period * (1 + _JITTER):
            raise ValueError(
                "the renew deadline must be longer than 1.2 retry periods, so that one renewal may fail"
            )
        if self.duration <= self.renew_deadline:
            raise ValueError("the lease duration must be longer than the renew deadline")
        if self.duration < timedelta(seconds=1):
            raise ValueError("the lease duration must be one second at least")


class Candidate:
    """A candidate for the Lease `namespace`/`name` with a unique name (`identity`).

    Other requests MUST NOT delay those of `client`: a renewal that waits in a line comes too late. `jitter`
    returns numbers from 0 to 1. With `is_group` several processes share the identity and own the Lease
    together; each of them renews it.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        terms: Terms = Terms(),
        jitter: Callable[[], float] = random.random,
        is_group: bool = False,
    ) -> None:
        terms.check()
        self.name = name
        self.identity = identity
        self._namespace = namespace
        self._client = client
        self._clock = clock
        self._terms = terms
        self._jitter = jitter
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._renewed_at: float | None = None
        self._free_since: float | None = None
        self._is_group = is_group
        self._written = deque[str](maxlen=_REMEMBERED)
        self._has_twin = False
        self.was_released = False
        """Whether another holder was seen, and then released the Lease."""
        self.tried = asyncio.Event()
        """Set after the first request for the Lease, whatever the response."""

    @property
    def place(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self._namespace}/{self.name}"

    @property
    def held(self) -> bool:
        """Whether this process certainly owns the Lease at this moment."""
        return self.left_s > 0

    @property
    def holder(self) -> str:
        """The holder, as last seen; empty without a holder, or before the first read."""
        return (self._seen.spec.holder_identity or "") if self._seen is not None else ""

    @property
    def asked_by(self) -> str:
        """The candidate that asked the holder to release the Lease, as last seen; empty without one."""
        wish = self._seen.spec.preferred_holder if self._seen is not None else None
        return wish if wish and wish != self.identity else ""

    @property
    def asks(self) -> bool:
        """Whether this candidate asked for the release."""
        return self._seen is not None and self._seen.spec.preferred_holder == self.identity

    @property
    def free_for_s(self) -> float | None:
        """For how long the Lease has been seen free; None with a holder, or before the first read."""
        return None if self._free_since is None else self._clock.monotonic() - self._free_since

    async def attempt(self, patience_s: float) -> None:
        """Acquire or renew the Lease once, if it is free or ours, within the given seconds. `held` is the
        result; an error is logged."""
        if problem := await self._try(patience_s):
            _log.warning("the lease %s/%s: %s", self._namespace, self.name, problem)

    async def join(self, patience_s: float) -> bool:
        """Acquire or renew it for a group, by a write that begins now; False: it is another's, or
        unreachable. Other members write it too: a conflict is retried."""
        begun = self._clock.monotonic()
        for _ in range(_CONFLICTS):
            await self.attempt(patience_s)
            if self._renewed_at is not None and self._renewed_at >= begun:
                return True
            if self._seen is not None and self._is_others():
                return False
        return False

    async def has_news(self) -> bool:
        """Whether the holder has changed, or a member of the group has called the others (`call`), since the
        last check. Raises `ApiError`, `Unreachable`."""
        before = self._seen.spec if self._seen is not None else LeaseSpec()
        await _within(self._clock, _REQUEST_S, self._is_free())
        now = self._seen.spec if self._seen is not None else LeaseSpec()
        return (before.holder_identity, before.lease_transitions) != (
            now.holder_identity,
            now.lease_transitions,
        )

    async def call(self) -> None:
        """Have the other members of the group check their Leases now. Raises `ApiError`, `Unreachable`."""
        for _ in range(_CONFLICTS):
            lease = await self._client.get(LEASES, self.name, self._namespace)
            if lease.spec.holder_identity != self.identity:
                return
            spec = lease.spec
            spec = msgspec.structs.replace(spec, lease_transitions=(spec.lease_transitions or 0) + 1)
            try:
                self._look_at(await self._client.update(LEASES, msgspec.structs.replace(lease, spec=spec)))
            except Conflict:
                continue
            return

    async def look(self, patience_s: float) -> None:
        """Read the holder, without acquiring. Raises `ApiError`, `Unreachable`."""
        if await _within(self._clock, min(patience_s, _REQUEST_S), self._is_free()):
            self._free_since = self._clock.monotonic() if self._free_since is None else self._free_since
        else:
            self._free_since = None

    async def ask(self) -> None:
        """Ask the holder to release the Lease. Raises `ApiError`, `Unreachable`."""
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
            if self.held:
                _log.debug("%s holds the lease %s/%s", self.identity, self._namespace, self.name)
                return
            if problem and problem != logged:
                _log.warning("the lease %s/%s: %s; trying again", self._namespace, self.name, problem)
            if not problem and self.holder != holder:
                _log.debug("waiting for the lease %s: %s holds it", self.place, self.holder or "no replica")
            logged, holder = problem, self.holder
            await self._clock.sleep(self._pause_s())

    async def keep(self) -> None:
        """Renew, until no renewal has succeeded for `renew_deadline` or another candidate holds the Lease."""
        problem = ""
        while self.held:
            # Not beyond the moment at which the Lease is lost.
            pause_s = min(self._terms.retry_period.total_seconds(), self.left_s)
            await self._clock.sleep(pause_s)
            if self.held:
                problem = await self._try(self.left_s)
        reason = problem or f"{self.holder or 'nobody'} holds it"
        _log.warning("the lease %s/%s was lost: %s", self._namespace, self.name, reason)
        self._renewed_at = None

    async def release(self) -> None:
        """Release the Lease immediately, if it is ours. If that fails, the others get it after its
        duration."""
        if not self.held or self._seen is None:
            return
        self._renewed_at = None
        self._free_since = self._clock.monotonic()
        try:
            await self._let_go(self._seen)
        except (ApiError, Unreachable) as error:
            _log.info("the lease %s/%s could not be released: %s", self._namespace, self.name, error)

    async def _let_go(self, lease: Lease) -> None:
        try:
            await self._client.update(LEASES, self._freed(lease))
        except Conflict:
            if self._is_group:
                # Another member has joined.
                return
            # Our last renewal may have been interrupted after the server had carried it out.
            lease = await self._client.get(LEASES, self.name, self._namespace)
            if lease.spec.holder_identity == self.identity:
                await self._client.update(LEASES, self._freed(lease))

    def _freed(self, lease: Lease) -> Lease:
        now = format_micro_time(self._clock.now())
        spec = msgspec.structs.replace(
            lease.spec, holder_identity="", lease_duration_seconds=1, renew_time=now, acquire_time=now
        )
        return msgspec.structs.replace(lease, spec=spec)

    @property
    def left_s(self) -> float:
        """Seconds for which the Lease is certainly ours; 0 or less where it is not."""
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self._terms.renew_deadline.total_seconds() - self._clock.monotonic()

    def _pause_s(self) -> float:
        return self._terms.retry_period.total_seconds() * (1 + _JITTER * self._jitter())

    async def _try(self, patience_s: float) -> str:
        """Acquire or renew the Lease, if it is free or ours; returns an error text. A request without a
        response is given up after `patience_s`."""
        # BEFORE the request: its duration must not count in our favour.
        begun = self._clock.monotonic()
        try:
            if await _within(self._clock, min(patience_s, _REQUEST_S), self._take()):
                self._renewed_at = begun
            elif self.holder not in ("", self.identity):
                self._renewed_at = None
        except (Conflict, AlreadyExists):
            # Another candidate was quicker; the next read shows which. There is never more than one holder.
            self._seen_at, self._seen = begun, None
            return ""
        except (ApiError, Unreachable) as error:
            return str(error)
        return ""

    async def _take(self) -> bool:
        if self.held and self._seen is not None:
            try:
                # Unchanged since our write: one request instead of two.
                return await self._write(self._seen)
            except Conflict:
                self._seen = None
        try:
            lease = await self._client.get(LEASES, self.name, self._namespace)
            self._look_for_twin(lease)
            self._look_at(lease)
        except NotFound:
            meta = ObjectMeta(name=self.name, namespace=self._namespace)
            lease = Lease(metadata=meta, spec=self._spec(LeaseSpec()))
            self._look_at(await self._client.create(LEASES, lease))
            return True
        assert self._seen is not None
        return not self._is_others() and await self._write(self._seen)

    def _look_for_twin(self, lease: Lease) -> None:
        """The process that holds the Lease under our identity, if this one has not written it."""
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
            self._look_at(await self._client.get(LEASES, self.name, self._namespace))
        except NotFound:
            return True
        return not self._is_others()

    async def _write(self, lease: Lease) -> bool:
        # With the resourceVersion that was read: of several candidates, one succeeds.
        mine = msgspec.structs.replace(lease, spec=self._spec(lease.spec))
        self._look_at(await self._client.update(LEASES, mine))
        self._has_twin = self.was_released = False
        return True

    def _look_at(self, lease: Lease) -> None:
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = self._clock.monotonic()
        if lease.spec.holder_identity:
            self.was_released = False
        elif self._seen is not None and self._seen.spec.holder_identity not in (None, "", self.identity):
            self.was_released = lease.spec.preferred_holder in (None, "", self.identity)
        self._seen = lease

    def _is_others(self) -> bool:
        assert self._seen is not None
        spec = self._seen.spec
        if not spec.holder_identity or (spec.holder_identity == self.identity and not self._has_twin):
            return False
        lasts_s = spec.lease_duration_seconds or 0
        return self._clock.monotonic() < self._seen_at + lasts_s

    def _spec(self, old: LeaseSpec) -> LeaseSpec:
        now = format_micro_time(self._clock.now())
        self._written.append(now)
        is_ours = old.holder_identity == self.identity
        changes = 0 if old.holder_identity is None else (old.lease_transitions or 0) + (not is_ours)
        return msgspec.structs.replace(
            old,
            holder_identity=self.identity,
            lease_duration_seconds=int(self._terms.duration.total_seconds()),
            acquire_time=old.acquire_time if is_ours else now,
            renew_time=now,
            lease_transitions=changes,
            preferred_holder=old.preferred_holder if is_ours else None,
        )


async def _within(clock: Clock, seconds: float, work: Coroutine[Any, Any, bool]) -> bool:
    """The result of `work`, within the given seconds of that clock. Raises `Unreachable` afterwards."""
    task, alarm = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Unreachable(f"the API server did not answer within {seconds:.0f} s")
    finally:
        alarm.cancel()
        task.cancel()
