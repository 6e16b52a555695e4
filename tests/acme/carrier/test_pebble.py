"""Whole certificates from a real Pebble, by way of the child."""

from __future__ import annotations

import asyncio
import os
import signal

from acme.carrier.children import carriers
from support.acme_world import acme_world
from support.pebble import running_pebble


async def test_certificates_are_issued_though_the_child_is_killed_meanwhile() -> None:
    with running_pebble() as pebble:
        async with acme_world(pebble, apart=True) as world:
            await world.issuer()
            names = [f"web-{n}" for n in range(8)]
            for name in names:
                await world.certificate(name, f"{name}.example.org")
            async with asyncio.timeout(120):
                while not (running := carriers()):  # noqa: ASYNC110 - what another process does, tells no event
                    await asyncio.sleep(0.01)
            os.kill(running[0], signal.SIGKILL)
            for name in names:
                await world.ready(name)
            assert len(carriers()) == 1
        assert carriers() == []
