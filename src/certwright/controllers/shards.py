"""Several replicas share the work: each works on the shards whose leases it holds.

A replica takes a free shard when it has none. It takes further ones, up to its share, when their holder has
died, or when they have stayed free for so long that no replica without one can want them. A replica that
finds none free asks the one that has most of them, through the Lease (`preferredHolder`); who has two or more
lets one go when it is asked. So N replicas come to hold a shard each, and the shards of one that died are
shared out among the rest as soon as its leases end.

When the set changes, the controllers are ended and made anew for the new set: rare, and the same way as at a
start, so that there is nothing that only happens then.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

from certwright.controllers.belonging import Mine
from certwright.controllers.manager import Controllers
from certwright.controllers.ours import Shards
from certwright.controllers.replica import Member
from certwright.engine.lease import Candidate, Terms
from certwright.kit.clock import Clock
from certwright.resources.errors import ApiError, Unreachable

_log = logging.getLogger(__name__)

# Replicas look more often than once in a retry period: what has been free for longer than this many of them
# is wanted by nobody who has none.
_FREE_FOR_LONG = 1.0


class ShardedReplica(Member):
    """Makes controllers (`make`) for the shards it holds; `seats` has a candidate for every shard.

    They MUST change things through a client that is fenced by `may_write`. Raises what `make` raises.
    """

    def __init__(
        self,
        make: Callable[[Mine], Controllers],
        seats: Sequence[Candidate],
        clock: Clock,
        terms: Terms,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(seats[0].name.rpartition("-")[0])
        # So that options that make no sense are told at the start.
        make(Shards(frozenset(), len(seats)))
        self._make = make
        self._seats = seats
        self._clock = clock
        self._retry_s = terms.retry_period.total_seconds()
        self._jitter = jitter
        self._working: frozenset[int] = frozenset()
        self._watch_over: asyncio.Task[None] | None = None

    @property
    def shards(self) -> frozenset[int]:
        """The shards that it works on."""
        return self._working

    @property
    def may_write(self) -> bool:
        """Whether all shards that it works on are held beyond doubt."""
        return bool(self._working) and all(self._seats[number].held for number in self._working)

    @property
    def holder(self) -> str:
        """Who holds shards, as last seen."""
        return ", ".join(sorted({seat.holder for seat in self._seats if seat.holder}))

    def start(self) -> None:
        """Begin to look for shards, and to work on those that are there."""
        self._tasks.start(self._run(), name="replica")

    async def close(self) -> None:
        """Stop, and then let the others have the shards."""
        await self._tasks.close()
        await self._stop()
        await asyncio.gather(*(seat.release() for seat in self._seats))

    async def _run(self) -> None:
        while True:
            # What was lost is not worked on any more, before anything else is tried.
            await self._work_on(self._held() & self._working)
            await asyncio.gather(*(self._renew_or_look(seat) for seat in self._seats))
            leaving = self._asked_for()
            await self._take()
            await self._work_on(self._held() - leaving)
            # Only now: two must never work on the same shard.
            await asyncio.gather(*(self._seats[number].release() for number in leaving))
            # Half as often again as a Lease is renewed, and never all replicas at the same moment.
            pause_s = self._retry_s * (0.6 + 0.2 * self._jitter())
            await self._clock.sleep(min([pause_s, *(self._seats[one].left_s for one in self._working)]))

    def _held(self) -> frozenset[int]:
        return frozenset(number for number, seat in enumerate(self._seats) if seat.held)

    async def _renew_or_look(self, seat: Candidate) -> None:
        if seat.held:
            await seat.attempt(min(self._retry_s, seat.left_s))
            return
        try:
            await seat.look(self._retry_s)
        except (ApiError, Unreachable) as error:
            _log.warning("the lease %s: %s", seat.name, error)

    def _asked_for(self) -> frozenset[int]:
        """What to let go: one at a time, and never the last."""
        held = self._held()
        asked = [number for number in sorted(held) if self._seats[number].asked_by]
        return frozenset(asked[:1] if len(held) > 1 else ())

    async def _take(self) -> None:
        free = [seat for seat in self._seats if not seat.held and seat.free_for_s is not None]
        # So that those who start together do not all try the same one.
        free.sort(key=lambda _: self._jitter())
        share = self._share()
        for seat in free:
            had = len(self._held())
            if had < share and (not had or self._is_left_over(seat)):
                await seat.attempt(self._retry_s)
        if not free and not self._held():
            await self._ask_the_fullest()

    def _share(self) -> int:
        """How many of the shards are one replica's part, as far as others are seen."""
        alive = {seat.holder for seat in self._seats if seat.free_for_s is None and not seat.held}
        return math.ceil(len(self._seats) / (len(alive - {""}) + 1))

    def _is_left_over(self, seat: Candidate) -> bool:
        return bool(seat.holder) or (seat.free_for_s or 0.0) >= _FREE_FOR_LONG * self._retry_s

    async def _ask_the_fullest(self) -> None:
        counts = Counter(seat.holder for seat in self._seats if seat.holder)
        fullest, count = counts.most_common(1)[0] if counts else ("", 0)
        theirs = [seat for seat in self._seats if seat.holder == fullest]
        if count < 2 or any(seat.asked_by or seat.asks for seat in theirs):
            return
        try:
            await theirs[0].ask()
        except (ApiError, Unreachable) as error:
            _log.debug("asking %s for a shard: %s", fullest, error)

    async def _work_on(self, shards: frozenset[int]) -> None:
        if shards == self._working:
            return
        await self._stop()
        if not shards:
            _log.warning("%s holds no shard any more and waits for one", self._seats[0].identity)
            return
        count = len(self._seats)
        _log.info("%s works on shards %s of %d", self._seats[0].identity, _words(shards), count)
        self._working = shards
        self._controllers = self._make(Shards(shards, count))
        self._controllers.start()
        self._watch_over = self._tasks.start(self._end_with(self._controllers), name="controllers")
        self._leading.set()

    async def _end_with(self, controllers: Controllers) -> None:
        """Fail when they fail."""
        raise await controllers.wait_failed()

    async def _stop(self) -> None:
        if self._watch_over is not None:
            self._watch_over.cancel()
        # Closed first: until then the fence stands as it stood.
        await self._end_work()
        self._working = frozenset()


def _words(shards: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(shards)))
