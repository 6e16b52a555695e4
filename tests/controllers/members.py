"""A replica with a connection of its own to a world's API server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Generic, TypeVar

from certwright.controllers.manager import ControllerManager
from certwright.controllers.replicas.replica import Replica
from certwright.controllers.replicas.shards import ClusterSettings, ShardedReplica, beside_a_server
from certwright.kube.api.errors import Unreachable
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.executor import Inline
from certwright.kube.util.http_messages import Request, Response
from certwright.kube.util.tasks import TaskSet
from support.world import CONTROLLER, World

R = TypeVar("R", Replica, ShardedReplica)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def sharded(world: World, name: str, shards: int) -> Member[ShardedReplica]:
    """A replica of so many shards."""
    return Member(world, ShardedReplica, ClusterSettings(identity=name, kube_api_qps=-1, shards=shards))


def alone(world: World, name: str) -> Member[Replica]:
    """A replica that works alone."""
    return Member(world, Replica, ClusterSettings(identity=name, kube_api_qps=-1))


class Member(Generic[R]):
    """Closed with its world, unless it was before. It can be cut off, or (`silent`) get no answers; `changes`
    has what it has written, Leases and Events left out."""

    def __init__(
        self,
        world: World,
        kind: type[R],
        settings: ClusterSettings,
        *,
        controllers: type[ControllerManager] = ControllerManager,
    ) -> None:
        self.cut = ""
        self.silent = False
        self.changes: list[str] = []
        self._world = world
        self._tasks = TaskSet()
        made = beside_a_server(
            LocalTransport(self._handle, CONTROLLER),
            settings,
            clock=world.clock,
            make=lambda client, mine: controllers(client, world.clock, Inline(), mine=mine),
            tasks=self._tasks,
        )
        assert isinstance(made, kind)
        self.replica: R = made
        world.on_close.append(self.close)
        made.start()

    async def _handle(self, request: Request) -> Response:
        if self.cut:
            raise Unreachable("cut off")
        if self.silent:
            await asyncio.get_running_loop().create_future()
        if request.method != "GET" and "/leases" not in request.target and "/events" not in request.target:
            self.changes.append(f"{request.method} {request.target.partition('?')[0]}")
        return await self._world.recording.handle(request)

    async def die(self) -> None:
        """As by SIGKILL: nothing is written any more, not even to release the leases."""
        self.cut = "dead"
        await self.close()

    async def close(self) -> None:
        await self.replica.close()
        await self._tasks.close()
