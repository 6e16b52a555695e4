"""Controllers whose objects make them wait, for servers or computation, are shared by namespaces."""

from __future__ import annotations

from certwright.controllers.deliveries.permissions import DeliveryOptions, Root
from certwright.controllers.shims.annotations import ShimOptions
from support.world import make_world

WAIT_FOR_SERVERS = {"certificaterequests", "issuers", "orders", "challenges"}
GENERATE_KEYS = {"certificates"}
READ_LARGE_OBJECTS = {"ingress-shim", "gateway-shim", "listenerset"}
RUN_HOOKS = {"deliveries"}


async def test_no_namespace_occupies_all_workers_of_these_controllers() -> None:
    roots = DeliveryOptions(roots={"web": Root(directory="/nowhere")})
    async with make_world(shims=ShimOptions(), deliveries=roots) as world:
        assert world.controllers is not None
        queues = world.controllers.wiring.queues
        shared = {name for name, queue in queues.items() if queue.most_per_flow is not None}
        assert shared == WAIT_FOR_SERVERS | GENERATE_KEYS | READ_LARGE_OBJECTS | RUN_HOOKS
