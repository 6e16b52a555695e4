"""Client-side rate limiter (token bucket), like client-go's.

It protects API servers that cannot protect themselves. A server with priority and fairness announces it, and
is then not limited.

Source: client-go `rest.Config` (QPS, Burst) and `util/flowcontrol`; Kubernetes documentation, "API Priority
and Fairness".
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Mapping
from contextvars import ContextVar

from certwright.kube.api.errors import Unreachable
from certwright.kube.client.transport import Transport, retry_after_s
from certwright.kube.util.clock import Clock
from certwright.kube.util.http_messages import Response, whole_body

_log = logging.getLogger(__name__)

REQUEST_RANK: ContextVar[float] = ContextVar("request rank", default=0.0)
"""The rank of the requests of a task: while they wait for the limit, the lowest goes first."""

LONGEST_HOLD_S = 60.0
"""Limit for a server's `Retry-After`: a longer one may come from a misconfigured proxy."""

# Interval at which it is checked whether the limit has been lifted.
_PIECE_S = 1.0
# Tolerance, because moments are sums of fractions.
_ROUNDING_S = 1e-6
_RETRY_S = 5.0
_FAIRNESS = "x-kubernetes-pf-flowschema-uid"


class Throttle:
    """Admits `burst` requests immediately, and `qps` a second on average: those of the lowest `REQUEST_RANK`
    first, and equals in order of arrival."""

    def __init__(self, clock: Clock, *, qps: float, burst: int) -> None:
        self.qps = qps
        self._clock = clock
        self._every_s = 1.0 / qps
        self._burst_s = (burst - 1) * self._every_s
        self._next = -math.inf
        self._paused_until = -math.inf
        self._lifted = False
        # The number keeps the order among equals.
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._task: asyncio.Task[None] | None = None

    @property
    def lifted(self) -> bool:
        """Whether there is no limit any more."""
        return self._lifted

    def lift(self) -> None:
        """Admit all requests, now and from now on; a `hold` stays in force."""
        self._lifted = True

    def hold(self, seconds: float) -> None:
        """Admit no requests for that long, at most a minute, because the server requested it."""
        until = self._clock.monotonic() + min(seconds, LONGEST_HOLD_S)
        self._paused_until = max(self._paused_until, until)

    async def take(self) -> None:
        """Return when one more request may be made."""
        if not self._waiting and self._left_s() <= _ROUNDING_S:
            self._count()
            return
        admitted = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (REQUEST_RANK.get(), next(self._numbers), admitted))
        if self._task is None:
            self._task = asyncio.create_task(self._admit(), name="request limit")
        await admitted

    async def _admit(self) -> None:
        """Admit the waiting requests, one at a time."""
        while self._waiting:
            admitted = self._waiting[0][2]
            if not admitted.done() and (left_s := self._left_s()) > _ROUNDING_S:
                await self._clock.sleep(min(left_s, _PIECE_S))
                continue
            heapq.heappop(self._waiting)
            if not admitted.done():  # a caller that was cancelled uses up no request
                admitted.set_result(None)
                self._count()
        self._task = None

    def _left_s(self) -> float:
        """The time until the next request is admitted."""
        admitted_at = self._paused_until if self._lifted else max(self._next, self._paused_until)
        return admitted_at - self._clock.monotonic()

    def _count(self) -> None:
        # `_next` may lag behind the clock by up to one burst.
        self._next = max(self._next, self._clock.monotonic() - self._burst_s) + self._every_s

    def close(self) -> None:
        """Stop admitting requests that wait."""
        if self._task is not None:
            self._task.cancel()
            self._task = None


class ThrottledTransport:
    """Sends requests only as fast as `throttle` admits them; a 429 with `Retry-After` delays all requests."""

    def __init__(self, inner: Transport, throttle: Throttle) -> None:
        self._inner = inner
        self._throttle = throttle

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The response, after the request was admitted."""
        await self._throttle.take()
        response = await self._inner.request(method, target, headers=headers, body=body)
        if response.status == 429 and (wait_s := retry_after_s(response)) is not None:
            self._throttle.hold(wait_s)
        return response

    async def close(self) -> None:
        """Close the underlying transport."""
        self._throttle.close()
        await self._inner.close()


async def lift_where_fair(transport: Transport, throttle: Throttle, clock: Clock, user_agent: str) -> None:
    """Query whether the server has priority and fairness, until it responds, and lift the limit if so; log
    that the limit stays in force otherwise.

    Source: client-go `util/flowcontrol.IsEnabled`, which sends the same request.
    """
    is_reported = False
    while True:
        try:
            response = await transport.request("HEAD", "/livez/ping", headers={"user-agent": user_agent})
        except Unreachable as error:
            if not is_reported:
                is_reported = True
                _log.info("requests are limited until the API server responds: %s", error)
            await clock.sleep(_RETRY_S)
            continue
        await whole_body(response)
        if _FAIRNESS in response.headers:
            throttle.lift()
            _log.debug("requests are not limited: the API server has priority and fairness")
        else:
            _log.info(
                "requests are limited to %g per second (--kube-api-qps): the API server does not announce "
                "priority and fairness (HEAD /livez/ping: status %d)",
                throttle.qps,
                response.status,
            )
        return
