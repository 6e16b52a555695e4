"""Limits at a real server: Pebble has none of its own, so the user's file gives it some."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from certwright.acme.limits.known import CaLimits, Limit, host_of
from certwright.kit.buckets import Rate
from certwright.resources import conditions
from certwright.resources.table import CONFIG_MAPS, ORDERS
from support.acme_world import acme_world
from support.pebble import Pebble


async def test_orders_go_as_fast_as_they_are_allowed_and_no_faster(pebble: Pebble) -> None:
    limits = CaLimits(name="Pebble", limits={"newOrders": Limit(Rate(2, timedelta(seconds=4)))})
    async with acme_world(pebble, limits={host_of(pebble.directory): limits}) as world:
        await world.issuer()
        for name in ("a", "b", "c", "d"):
            await world.certificate(name, f"{name}.limits.example.org")
        await asyncio.gather(*(world.ready(name) for name in ("a", "b")))
        waiting = [one.status.reason for one in (await world.client.list(ORDERS)).items if one.status.reason]
        assert any("Pebble allows 2 orders of this account in 4 s" in reason for reason in waiting)
        found = await asyncio.gather(*(world.ready(name) for name in ("c", "d")))
        assert all(conditions.is_true(one.status.conditions, "Ready") for one in found)
        assert (await world.client.list(CONFIG_MAPS, labels="certwright.io/acme-limits=true")).items
