"""Whatever the API server does for a while: nothing is lost or done twice, and it is not asked without end.

One replica, and two that share the work. What is tested of single parts is in `tests/client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from certwright.controllers.replicas.replica import Replica
from certwright.controllers.replicas.shards import ClusterSettings, ShardedReplica
from certwright.kube.api.core import SECRETS
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.bad_server import BadServer, Fault, closes_watches, expires, refuses
from controllers.crashes import Ledger
from controllers.members import Member
from controllers.scene import Scene, make_certificate, make_secret
from controllers.test_faults import check_end
from controllers.test_shards import allow_shards
from support.world import World, make_world

pytestmark = pytest.mark.every(6)

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
NAMES = ["web-a", "web-b", "web-c", "web-d"]
# Several kinds are followed, and each replica has Leases to look after. Three that are not served are looked
# for every two minutes at most.
FOLLOWED = 14 + 6
COUNTS = [1, 2]
BOTH = pytest.mark.parametrize("replicas", COUNTS, ids=["one replica", "two with shards"])


@dataclass
class Ward:
    """A world whose API server can be made to misbehave, and replicas that have issued nothing yet."""

    world: World
    scene: Scene
    server: BadServer
    ledger: Ledger
    members: list[Member[Replica] | Member[ShardedReplica]] = field(default_factory=list)

    async def issue(self) -> None:
        """Ask for all certificates."""
        for name in NAMES:
            await self.world.create(CERTIFICATES, make_certificate(name, "ca"))
        await self.world.settle()

    async def is_synced(self) -> bool:
        """Whether all that work have complete copies."""
        return all(member.replica.leads for member in self.members)


@asynccontextmanager
async def ward(replicas: int) -> AsyncIterator[Ward]:
    """A world with a CA issuer, in which so many replicas work."""
    async with make_world(controllers=False) as world:
        await allow_shards(world)
        ledger = Ledger(world.recording.handler)
        server = BadServer(ledger.handle, world.clock)
        world.recording.handler = server.handle
        made = Ward(world, Scene(world), server, ledger)
        for number in range(replicas):
            settings = ClusterSettings(identity=f"replica-{number}", kube_api_qps=-1, shards=replicas)
            if replicas == 1:
                made.members.append(Member(world, Replica, settings))
            else:
                made.members.append(Member(world, ShardedReplica, settings))
        await world.advance(2 * MINUTE)
        assert await made.is_synced()
        await made.scene.add_ca()
        await world.advance(MINUTE)
        try:
            yield made
        finally:
            # Nobody moves the clock while they let go of their leases.
            server.takes_s, server.fault = 0.0, None
            for member in made.members:
                await member.close()


FAULTS: dict[str, tuple[Callable[[int], Fault], int]] = {
    "410 for every watch": (expires, 40),
    "every watch closed": (closes_watches, 40),
    "429 with Retry-After": (refuses(429, "TooManyRequests", retry_after="5"), 60),
    "429 without": (refuses(429, "TooManyRequests"), 60),
    "500": (refuses(500, "InternalError"), 60),
    "504": (refuses(504, "Timeout"), 60),
    "half of all answers 500": (refuses(500, "InternalError", share=0.5), 80),
    "401": (refuses(401, "Unauthorized"), 60),
}
"""What is wrong for two minutes, and how often each followed kind may ask for it meanwhile."""


@pytest.mark.every(3)
@BOTH
@pytest.mark.parametrize("fault", FAULTS)
async def test_what_goes_wrong_for_two_minutes_is_made_up_for(fault: str, replicas: int) -> None:
    make, most = FAULTS[fault]
    async with ward(replicas) as members:
        world, server = members.world, members.server
        server.fault = make(7)
        before = server.requests
        await members.issue()
        await world.advance(2 * MINUTE)
        assert server.requests - before <= most * FOLLOWED * replicas
        server.fault = None
        await world.advance(10 * MINUTE)
        await check_end(members.scene, members.ledger, NAMES)
        # At rest again: no more than a look every few minutes.
        before = server.requests
        await world.advance(HOUR)
        leases = 6 * 60 * replicas * replicas
        assert server.requests - before <= 3 * 60 / 8 * FOLLOWED * replicas + leases


@BOTH
async def test_a_slow_server_is_waited_for(replicas: int) -> None:
    async with ward(replicas) as members:
        members.server.takes_s = 8.0
        await members.issue()
        await members.world.advance(10 * MINUTE)
        await check_end(members.scene, members.ledger, NAMES)


@BOTH
@pytest.mark.parametrize("loses", [0.5, 1.0], ids=["half", "all"])
async def test_events_that_get_lost_delay_things_and_nothing_more(replicas: int, loses: float) -> None:
    async with ward(replicas) as members:
        members.server.loses = loses
        await members.issue()
        await members.world.advance(HOUR)
        assert members.server.lost > 0
        await check_end(members.scene, members.ledger, NAMES)


@BOTH
async def test_a_deletion_that_no_event_tells_of_is_noticed(replicas: int) -> None:
    async with ward(replicas) as members:
        await members.issue()
        await check_end(members.scene, members.ledger, NAMES)
        members.server.loses = 1.0
        for name in NAMES:
            await members.world.client.delete(SECRETS, name, "default")
        await members.world.delete(ISSUERS, "root")
        # Something else happens, so that the copies believe to be further than they are.
        members.server.loses = 0.0
        await members.world.create(SECRETS, make_secret("other", {}))
        await members.world.advance(20 * MINUTE)
        await check_end(members.scene, members.ledger, NAMES)
        assert (await members.world.certificate("web-a")).status.revision == 2
