"""One of several does the work: leader election by a Lease, as client-go's `leaderelection` does it.

A Lease names its holder and how long the others have to wait after its last renewal. Whether that time is
over is judged by each candidate's own clock, from the moment at which IT saw the Lease change; the times
written in it are for people. So clocks that differ do no harm.

    acquire ──held──▶ keep ──lost──▶ acquire …
                        └─ release (nobody has to wait)

A holder that could not renew for `renew_deadline` has lost, although the others wait for `duration`: the time
between is what its last requests have to arrive in.

Source: Kubernetes documentation, "Leases"; client-go `tools/leaderelection`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from certwright.client.rest import Client
from certwright.client.transport import Transport
from certwright.kit.clock import Clock
from certwright.kit.exchange import Response
from certwright.resources.core import Lease, LeaseSpec
from certwright.resources.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from certwright.resources.meta import ObjectMeta
from certwright.resources.micro_time import format_micro_time
from certwright.resources.table import LEASES

_log = logging.getLogger(__name__)

# Candidates that look at the same moments would all try at once; client-go's JitterFactor.
_JITTER = 0.2
_READING = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long a Lease lasts, after how long without renewal its holder gives up, and how often it renews and
    the others look. The defaults are cert-manager's."""

    duration: timedelta = timedelta(seconds=60)
    renew_deadline: timedelta = timedelta(seconds=40)
    retry_period: timedelta = timedelta(seconds=15)

    def check(self) -> None:
        """Raises `ValueError`, with a sentence, for terms by which two could hold a Lease at once."""
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
    """One who wants to hold the Lease `namespace`/`name`, under a name of its own (`identity`).

    `client` MUST NOT be held up by others' requests: a renewal that waits in a line comes too late. `jitter`
    gives numbers from 0 to 1.
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

    @property
    def held(self) -> bool:
        """Whether the Lease is ours beyond doubt at this moment."""
        return self.left_s > 0

    @property
    def holder(self) -> str:
        """Who holds it, as last seen; empty where nobody does or nothing was seen."""
        return (self._seen.spec.holder_identity or "") if self._seen is not None else ""

    @property
    def asked_by(self) -> str:
        """Who asked the holder to let it go, as last seen; empty where nobody did."""
        wish = self._seen.spec.preferred_holder if self._seen is not None else None
        return wish if wish and wish != self.identity else ""

    @property
    def asks(self) -> bool:
        """Whether it was we who asked."""
        return self._seen is not None and self._seen.spec.preferred_holder == self.identity

    @property
    def free_for_s(self) -> float | None:
        """For how long it has been seen to be free; None where somebody holds it, or nobody looked."""
        return None if self._free_since is None else self._clock.monotonic() - self._free_since

    async def attempt(self, patience_s: float) -> None:
        """Take or renew it once, if it is free or ours, within so many seconds. `held` tells what came of it;
        what went wrong is logged."""
        if problem := await self._try(patience_s):
            _log.warning("the lease %s/%s: %s", self._namespace, self.name, problem)

    async def look(self, patience_s: float) -> None:
        """See who holds it, without taking it. Raises `ApiError`, `Unreachable`."""
        if await _within(self._clock, patience_s, self._is_free()):
            self._free_since = self._clock.monotonic() if self._free_since is None else self._free_since
        else:
            self._free_since = None

    async def ask(self) -> None:
        """Ask the holder to let it go. Raises `ApiError`, `Unreachable`."""
        assert self._seen is not None
        spec = msgspec.structs.replace(self._seen.spec, preferred_holder=self.identity)
        await self._client.update(LEASES, msgspec.structs.replace(self._seen, spec=spec))

    async def acquire(self) -> None:
        """Return when the Lease is ours. What goes wrong is logged, once for every new cause."""
        told = ""
        while True:
            patience_s = self._terms.renew_deadline.total_seconds()
            problem = await self._try(patience_s)
            if self.held:
                _log.debug("%s holds the lease %s/%s", self.identity, self._namespace, self.name)
                return
            if problem and problem != told:
                _log.warning("the lease %s/%s: %s; trying again", self._namespace, self.name, problem)
            told = problem
            await self._clock.sleep(self._pause_s())

    async def keep(self) -> None:
        """Renew, until that has not succeeded for too long or somebody else holds the Lease."""
        problem = ""
        while self.held:
            # Not beyond the moment at which it is lost.
            pause_s = min(self._terms.retry_period.total_seconds(), self.left_s)
            await self._clock.sleep(pause_s)
            if self.held:
                problem = await self._try(self.left_s)
        reason = problem or f"{self.holder or 'nobody'} holds it"
        _log.warning("the lease %s/%s was lost: %s", self._namespace, self.name, reason)
        self._renewed_at = None

    async def release(self) -> None:
        """Let others have it at once, if it is ours. Whatever goes wrong, they get it after its duration."""
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
            # Our last renewal may have been broken off after the server had carried it out.
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
        """Seconds for which the Lease is ours beyond doubt; 0 or less where it is not."""
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self._terms.renew_deadline.total_seconds() - self._clock.monotonic()

    def _pause_s(self) -> float:
        return self._terms.retry_period.total_seconds() * (1 + _JITTER * self._jitter())

    async def _try(self, patience_s: float) -> str:
        """Take or renew the Lease, if it is free or ours; what went wrong, in words. A request without answer
        is given up after `patience_s`."""
        # BEFORE the request: how long it takes must not count in our favour.
        begun = self._clock.monotonic()
        try:
            if await _within(self._clock, patience_s, self._take()):
                self._renewed_at = begun
            elif self.holder not in ("", self.identity):
                self._renewed_at = None
        except (Conflict, AlreadyExists):
            # Somebody was quicker; who, the next look tells. It cannot be two at once.
            self._seen_at, self._seen = begun, None
            return ""
        except (ApiError, Unreachable) as error:
            return str(error)
        return ""

    async def _take(self) -> bool:
        if self.held and self._seen is not None:
            try:
                # As it was left: one request instead of two.
                return await self._write(self._seen)
            except Conflict:
                self._seen = None
        try:
            self._look_at(await self._client.get(LEASES, self.name, self._namespace))
        except NotFound:
            meta = ObjectMeta(name=self.name, namespace=self._namespace)
            lease = Lease(metadata=meta, spec=self._spec(LeaseSpec()))
            self._look_at(await self._client.create(LEASES, lease))
            return True
        assert self._seen is not None
        return not self._is_others() and await self._write(self._seen)

    async def _is_free(self) -> bool:
        try:
            self._look_at(await self._client.get(LEASES, self.name, self._namespace))
        except NotFound:
            return True
        return not self._is_others()

    async def _write(self, lease: Lease) -> bool:
        # With the resourceVersion that was seen: of several who try, one succeeds.
        mine = msgspec.structs.replace(lease, spec=self._spec(lease.spec))
        self._look_at(await self._client.update(LEASES, mine))
        return True

    def _look_at(self, lease: Lease) -> None:
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen_at = self._clock.monotonic()
        self._seen = lease

    def _is_others(self) -> bool:
        assert self._seen is not None
        spec = self._seen.spec
        if not spec.holder_identity or spec.holder_identity == self.identity:
            return False
        lasts_s = spec.lease_duration_seconds or 0
        return self._clock.monotonic() < self._seen_at + lasts_s

    def _spec(self, old: LeaseSpec) -> LeaseSpec:
        now = format_micro_time(self._clock.now())
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
    """What `work` gives, within so many seconds of that clock. Raises `Unreachable` afterwards."""
    task, alarm = asyncio.ensure_future(work), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Unreachable(f"the API server did not answer within {seconds:.0f} s")
    finally:
        alarm.cancel()
        task.cancel()


class FencedTransport:
    """Lets changes through only while `may_write`: who has lost a lease changes nothing any more.

    A request that is under way at that moment may still be carried out; objects are changed with the
    resourceVersion that was seen, so it cannot undo what the next holder did.
    """

    def __init__(self, inner: Transport, may_write: Callable[[], bool]) -> None:
        self._inner = inner
        self._may_write = may_write

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The answer. Raises `Unreachable` for a change that is no longer ours to make."""
        if method not in _READING and not self._may_write():
            raise Unreachable("another replica may have taken over: nothing is changed from here")
        return await self._inner.request(method, target, headers=headers, body=body)

    async def close(self) -> None:
        """Close the transport behind it."""
        await self._inner.close()
