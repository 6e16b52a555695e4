"""Limits at a real server: Pebble has none of its own, so the user's file gives it some."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from certwright.acme.ratelimits.published import CaLimits, Limit, host_of
from certwright.kit.rate_limit import Rate
from certwright.kube.api import conditions
from certwright.kube.api.core import CONFIG_MAPS
from certwright.resources.table import CERTIFICATES, ORDERS
from support.acme_world import AcmeWorld, acme_world
from support.pebble import Pebble
from support.shifted import ShiftedClock

_ALLOWED = 2
_HOURS = timedelta(hours=4)


async def how_many(world: AcmeWorld) -> tuple[int, int]:
    """Of the Certificates those that are there, and those whose Orders wait for the limit."""
    issued = (await world.client.list(CERTIFICATES)).items
    orders = (await world.client.list(ORDERS)).items
    expected = "Pebble allows 2 orders of this account in 4 hours"
    return (
        sum(conditions.is_true(certificate.status.conditions, "Ready") for certificate in issued),
        sum(expected in order.status.reason for order in orders),
    )


async def test_orders_go_as_they_are_allowed_and_the_others_wait(pebble: Pebble) -> None:
    clock = ShiftedClock()
    limits = CaLimits(name="Pebble", limits={"newOrders": Limit(Rate(_ALLOWED, _HOURS))})
    async with acme_world(pebble, clock=clock, limits={host_of(pebble.directory): limits}) as world:
        await world.issuer()
        names = ("a", "b", "c", "d")
        for name in names:
            await world.certificate(name, f"{name}.limits.example.org")
        async with asyncio.timeout(120):
            while await how_many(world) != (_ALLOWED, len(names) - _ALLOWED):  # noqa: ASYNC110 - as a user would
                await asyncio.sleep(0.02)
        clock.jump(_HOURS)
        for name in names:
            await world.ready(name)
        assert (await world.client.list(CONFIG_MAPS, labels="certwright.io/acme-limits=true")).items
