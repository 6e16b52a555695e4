"""An upgrade from a version with its state in messages (objects of commit e712f13) attempts nothing early."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from certwright.acme.protocol.messages import Action
from certwright.kube.api.core import SECRETS
from certwright.resources import names
from certwright.resources.causes import Why
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ORDERS
from controllers.acme.fake_world import FakeWorld
from controllers.external_issuer import add_external_issuer
from support.world import START, World

_OBJECTS = Path(__file__).parents[1] / "before_annotations"
_KINDS: tuple[Any, ...] = (CERTIFICATES, CERTIFICATE_REQUESTS, ORDERS, SECRETS)
HOUR = timedelta(hours=1)


async def restore(world: World, file: str) -> None:
    """Create the objects with their status; references to UIDs follow the new UIDs."""
    text = (_OBJECTS / file).read_text()
    for kind in _KINDS:
        for index in range(len(json.loads(text).get(kind.plural, []))):
            manifest = json.loads(text)[kind.plural][index]
            meta, former = manifest["metadata"], manifest["metadata"].pop("uid")
            status = manifest.pop("status", None)
            made = await world.client.create(kind, msgspec.convert(manifest, kind.type))
            if status is not None:
                patch = {"status": status}
                await world.client.patch(kind, meta["name"], "default", patch, subresource="status")
            text = text.replace(former, made.metadata.uid)


async def test_certificates_that_failed_at_an_issuer_of_another_group_wait_as_before(world: World) -> None:
    await world.stop_controllers()
    issuer = await add_external_issuer(world, lambda _: Why())
    await restore(world, "external.json")
    await world.start_controllers(issuer_attempts_per_hour=0)
    await world.advance(33 * HOUR)
    first = {key.name: moment for moment, key in reversed(issuer.asked)}
    waits = (30 * HOUR, 6 * HOUR, 32 * HOUR, HOUR)
    assert first == {f"thing{n:02}-1": START + waits[n % 4] for n in range(13)}


async def test_orders_that_wait_for_a_rate_limit_wait_as_before(fake: FakeWorld) -> None:
    await fake.world.stop_controllers()
    await restore(fake.world, "acme.json")
    await fake.start()
    orders = (await fake.world.client.list(ORDERS)).items
    limited = next(order for order in orders if order.metadata.name.startswith("limited00-"))
    assert limited.metadata.annotations[names.ACME_ATTEMPTS] == "2026-01-01T00:00:02Z"
    assert limited.metadata.annotations[names.NOT_BEFORE] == "2026-01-01T02:00:02+00:00"
    assert fake.ca.counted()[Action.NEW_ORDER] <= 11
    await fake.world.advance(HOUR + timedelta(minutes=55))
    assert not await fake.world.is_ready("limited00")
    await fake.world.advance(2 * HOUR)
    assert await fake.world.is_ready("limited00")
