"""Several processes write one CA's ledger: what one has reserved no other reserves, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.acme.ratelimits.ledger import NewOrder, WaitUntil
from certwright.acme.ratelimits.published import CaLimits, Limit
from certwright.controllers.acme.shared_ledger import SharedLedger, config_map_name
from certwright.kit.rate_limit import Rate
from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Request, Response
from support.world import CONTROLLER, World, make_world

SERVER = "https://ca.example/directory"
HOUR = timedelta(hours=1)
EVERYONE = ("0/2", "1/2")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with make_world(controllers=False) as made:
        yield made


def ledger_of(world: World, share: str, *, count: int = 10) -> SharedLedger:
    """The ledger as the process of that shard has it, of a CA that allows so many orders in an hour."""

    async def handle(request: Request) -> Response:
        # A real server does not answer before others have spoken.
        await asyncio.sleep(0)
        return await world.recording.handle(request)

    client = Client(LocalTransport(handle, CONTROLLER), user_agent=share, clock=world.clock)
    return SharedLedger(
        SERVER,
        CaLimits(name="the CA", limits={"newOrders": Limit(Rate(count, HOUR, refills=False))}),
        lambda _uid: None,
        client=client,
        clock=world.clock,
        namespace="kube-system",
        own=(share,),
        everyone=EVERYONE,
    )


async def reserve(world: World, ledger: SharedLedger, uid: str) -> WaitUntil | None:
    now = world.clock.now()
    new_order = NewOrder(uid, "https://ca.example/acct/1", (f"{uid}.example.org",), now)
    return await ledger.reserve(lambda state: state.admit(new_order, now))


async def saved(world: World) -> dict[str, Any]:
    state: dict[str, Any] = msgspec.json.decode((await kept(world)).data["state.json"])
    return state


async def kept(world: World) -> ConfigMap:
    return await world.get(CONFIG_MAPS, config_map_name(SERVER), "kube-system")


def writes(world: World) -> int:
    return sum("/configmaps" in write.path for write in world.recording.writes)


async def test_reservations_made_at_the_same_time_are_one_write(world: World) -> None:
    ledger = ledger_of(world, "0/2", count=100)
    await ledger.load()
    await asyncio.gather(*(reserve(world, ledger, f"o{number}") for number in range(50)))
    # One for the first, and one for those that came while it was under way.
    assert writes(world) == 2
    assert len((await saved(world))["ledger"]["flights"]) == 50


async def test_two_processes_reserve_together_what_there_is(world: World) -> None:
    first, second = ledger_of(world, "0/2"), ledger_of(world, "1/2")
    for ledger in (first, second):
        await ledger.load()
    answers = await asyncio.gather(
        *(reserve(world, first, f"a{number}") for number in range(8)),
        *(reserve(world, second, f"b{number}") for number in range(8)),
    )
    assert answers.count(None) == 10
    assert len((await saved(world))["ledger"]["flights"]) == 10


async def test_an_answer_that_was_lost_reserves_nothing_twice(world: World) -> None:
    first, second = ledger_of(world, "0/2"), ledger_of(world, "1/2")
    for ledger in (first, second):
        await ledger.load()
    await reserve(world, first, "a")
    await reserve(world, second, "b")
    # As after a write whose answer did not arrive: what it wrote is applied to what it wrote.
    now = world.clock.now()
    second.change(lambda state: state.placed("b", now))
    await second.commit()
    second._operations.append(lambda state: state.placed("b", now))
    second._count += 1
    second._version = "1"
    await second.commit()
    await first.refresh(0)
    assert first.ledger.flights.keys() == {"a", "b"}
    numbers = (await saved(world))["ledger"]["buckets"]["newOrders/https://ca.example/acct/1"]
    assert (numbers[1], len(numbers[3:])) == (1, 1)


async def test_a_config_map_that_was_deleted_is_written_again_with_all_that_is_known(world: World) -> None:
    ledger = ledger_of(world, "0/2")
    await ledger.load()
    await reserve(world, ledger, "a")
    await world.client.delete(CONFIG_MAPS, config_map_name(SERVER), "kube-system")
    await reserve(world, ledger, "b")
    assert (await saved(world))["ledger"]["flights"].keys() == {"a", "b"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"ledger": []}',
        '{"ledger": {"buckets": {"newOrders/x": [99999999999999999999, 0, 0]}}}',
        '{"ledger": {"buckets": {"newOrders/x": ["much"]}, "flights": {"u": [1, true, false, [7], [-1]]}}}',
        '{"ledger": {"buckets": {"newOrders/x": [0, 2000000000, 0]}, "paces": {"refused/x": -5}}}',
    ],
)
async def test_a_ledger_that_was_damaged_stops_no_order(world: World, text: str) -> None:
    meta = {"name": config_map_name(SERVER), "namespace": "kube-system"}
    await world.create(
        CONFIG_MAPS, msgspec.convert({"metadata": meta, "data": {"state.json": text}}, ConfigMap)
    )
    ledger = ledger_of(world, "0/2")
    await ledger.load()
    assert await reserve(world, ledger, "a") is None
    assert "a" in (await saved(world))["ledger"]["flights"]


async def test_each_shard_says_up_to_where_it_has_counted_and_what_waits(world: World) -> None:
    first, second = ledger_of(world, "0/2", count=1), ledger_of(world, "1/2", count=1)
    await first.load()
    first.revision = 5
    await reserve(world, first, "a")
    await second.load()
    second.revision = 7
    for uid in ("b", "c"):
        assert isinstance(await reserve(world, second, uid), WaitUntil)
    await second.commit()
    shares = (await saved(world))["shares"]
    assert {name: share["revision"] for name, share in shares.items()} == {"0/2": 5, "1/2": 7}
    await reserve(world, first, "d")
    await first.commit()
    assert (await saved(world))["ledger"]["waiting"] == {"newOrders/https://ca.example/acct/1": 3}


async def test_an_order_behind_others_expects_the_lines_of_other_processes_before_it(world: World) -> None:
    first, second = ledger_of(world, "0/2", count=1), ledger_of(world, "1/2", count=1)
    for ledger in (first, second):
        await ledger.load()
    await reserve(world, first, "a")
    for uid in ("b", "c", "d"):
        await reserve(world, first, uid)
    await first.commit()
    await second.refresh(0)
    waits = [await reserve(world, second, uid) for uid in ("e", "f", "g", "h")]
    hours = [round((wait.moment - world.clock.now()) / HOUR) for wait in waits if isinstance(wait, WaitUntil)]
    assert hours[0] == 1
    assert hours[-1] > 4
