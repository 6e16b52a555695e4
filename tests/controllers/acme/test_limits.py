"""Orders wait for the CA's limits, across restarts; what the CA says corrects us. The CA is a fake one, the
clock is the test's; API server and controllers are real.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from certwright.acme.protocol.messages import Action
from certwright.acme.ratelimits.published import CaLimits, Limit
from certwright.kit.rate_limit import Bucket, Rate, micros
from certwright.kube.api.core import CONFIG_MAPS, ConfigMap
from certwright.resources.table import CERTIFICATES, ORDERS
from controllers.acme.fake_world import FakeWorld, fake_world

HOUR = timedelta(hours=1)
LIMITS = CaLimits(
    name="the CA",
    limits={
        "newOrders": Limit(Rate(3, 3 * HOUR)),
        "certificatesPerDomain": Limit(Rate(2, 48 * HOUR)),
        "failedValidations": Limit(Rate(2, 2 * HOUR)),
    },
)


@pytest.fixture
async def limited() -> AsyncIterator[FakeWorld]:
    """At a CA that allows three orders at once and one more each hour, and two certificates per domain."""
    async with fake_world(limits={"ca.example": LIMITS}) as made:
        await made.issuer()
        yield made


async def kept(fake: FakeWorld) -> ConfigMap:
    """The ConfigMap of the CA."""
    (config_map,) = (await fake.world.client.list(CONFIG_MAPS, labels="certwright.io/acme-limits=true")).items
    return config_map


async def reason_of(fake: FakeWorld, name: str) -> str:
    """What the Order of that Certificate waits for."""
    (order,) = [order for order in await fake.orders() if order.metadata.name.startswith(f"{name}-")]
    return order.status.reason


async def ready(fake: FakeWorld, *names: str) -> list[bool]:
    """Which of the Certificates are there."""
    return [await fake.world.is_ready(name) for name in names]


async def issue(fake: FakeWorld, name: str, *dns_names: str) -> None:
    """Make a Certificate; ten seconds pass."""
    await fake.issue(name, *dns_names, after=timedelta(seconds=10))


def orders_made(fake: FakeWorld) -> int:
    """How often the CA was asked for a new order."""
    return fake.ca.counted()[Action.NEW_ORDER]


async def test_an_order_that_would_exceed_a_limit_waits_and_says_until_when(limited: FakeWorld) -> None:
    for name in ("a", "b", "c", "d"):
        await issue(limited, name, f"www.{name}.org")
    began = limited.world.clock.now()
    assert await ready(limited, "a", "b", "c", "d") == [True, True, True, False]
    assert orders_made(limited) == 3
    reason = await reason_of(limited, "d")
    assert reason.startswith("Waiting until 2026-01-01T01:00:")
    assert reason.endswith("the CA allows 3 orders of this account in 3 hours")
    assert reason in await limited.message_of("Issuing", "d") or reason in str(await limited.requests())
    await limited.world.advance_to(began + HOUR - timedelta(seconds=50))
    assert orders_made(limited) == 3
    await limited.world.advance(timedelta(minutes=2))
    assert await ready(limited, "d") == [True]


async def test_a_domain_that_has_had_its_certificates_does_not_hold_up_others(limited: FakeWorld) -> None:
    for name in ("a", "b"):
        await issue(limited, name, f"{name}.shop.co.uk")
    await issue(limited, "c", "c.shop.co.uk")
    await issue(limited, "d", "d.other.co.uk")
    assert await ready(limited, "a", "b", "c", "d") == [True, True, False, True]
    assert "2 certificates for shop.co.uk in 2 days" in await reason_of(limited, "c")
    await limited.world.advance(24 * HOUR)
    assert await ready(limited, "c") == [True]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["saved", "from the Orders"])
async def test_what_was_counted_survives_a_restart(limited: FakeWorld, *, is_deleted: bool) -> None:
    for name in ("a", "b", "c"):
        await issue(limited, name, f"{name}.shop.org")
    await limited.world.stop_controllers()
    meta = (await kept(limited)).metadata
    if is_deleted:
        await limited.world.client.delete(CONFIG_MAPS, meta.name, meta.namespace)
    await limited.start()
    await issue(limited, "d", "d.shop.org")
    assert orders_made(limited) == 2
    assert "2 certificates for shop.org" in await reason_of(limited, "d")


async def test_a_refusal_corrects_what_we_think(limited: FakeWorld) -> None:
    detail = 'too many certificates (2) already issued for "shop.org" in the last 48h0m0s'
    limited.ca.refuse(Action.NEW_ORDER, "rateLimited", detail, status=429, retry_after="7200", times=1)
    await issue(limited, "a", "a.shop.org")
    assert orders_made(limited) == 1
    assert detail in await reason_of(limited, "a")
    # Another one of the same domain is not even tried; one of another domain is.
    await issue(limited, "b", "b.shop.org")
    await issue(limited, "c", "c.other.org")
    assert "2 certificates for shop.org" in await reason_of(limited, "b")
    assert await ready(limited, "a", "b", "c") == [False, False, True]
    await limited.world.advance(2 * HOUR + timedelta(minutes=1))
    assert await ready(limited, "a", "b") == [True, False]
    await limited.world.advance(24 * HOUR)
    assert await ready(limited, "b") == [True]
    assert orders_made(limited) == 4


async def test_a_renewal_of_the_same_names_counts_for_nothing_but_its_set(limited: FakeWorld) -> None:
    for name in ("a", "b", "c"):
        await issue(limited, name, f"www.{name}.org")
    await issue(limited, "d", "www.d.org")
    assert await ready(limited, "a", "d") == [True, False]
    before = (await limited.certificate("a")).status.revision
    certificate = await limited.certificate("a")
    await limited.world.client.patch(CERTIFICATES, "a", "default", {"spec": {"privateKey": {"size": 384}}})
    await limited.world.advance(timedelta(minutes=1))
    assert certificate.status.revision == before == 1
    assert (await limited.certificate("a")).status.revision == 2
    assert orders_made(limited) == 4
    assert await ready(limited, "d") == [False]


async def test_an_order_that_is_deleted_lets_the_next_one_go(limited: FakeWorld) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await issue(limited, name, f"www.{name}.org")
    began = limited.world.clock.now()
    assert await ready(limited, "d", "e") == [False, False]
    await limited.world.client.delete(CERTIFICATES, "d", "default")
    await limited.world.settle()
    for order in await limited.orders():
        if order.metadata.name.startswith("d-"):
            await limited.world.client.delete(ORDERS, order.metadata.name, "default")
    await limited.world.advance_to(began + HOUR + timedelta(minutes=1))
    assert await ready(limited, "e") == [True]


async def test_new_accounts_wait_for_the_limit_of_the_address() -> None:
    limits = CaLimits(name="the CA", limits={"newAccounts": Limit(Rate(1, HOUR))})
    async with fake_world(limits={"ca.example": limits}) as fake:
        await fake.issuer("one")
        await fake.issuer("two")
        assert (await fake.ready_of("one"))[0] == "True"
        status, reason, message = await fake.ready_of("two")
        assert (status, reason) == ("False", "ErrRegisterACMEAccount")
        assert "Waiting until 2026-01-01T01:00:" in message
        assert message.endswith("the CA allows 1 new accounts from this address in an hour")
        await fake.world.advance(HOUR + timedelta(minutes=1))
        assert (await fake.ready_of("two"))[0] == "True"


@pytest.mark.every(3)
@pytest.mark.parametrize("step", range(3, 34, 3))
async def test_a_crash_at_any_step_never_forgets_an_order(limited: FakeWorld, step: int) -> None:
    limited.cut.left = step
    await issue(limited, "a", "a.shop.org")
    await limited.start()
    await limited.world.advance(timedelta(minutes=2))
    assert await ready(limited, "a") == [True]
    assert orders_made(limited) == 1
    # What became of it is read when the next one asks.
    await issue(limited, "b", "b.shop.org")
    await limited.world.advance(timedelta(minutes=1))
    kept_now = msgspec.json.decode((await kept(limited)).data["state.json"])["ledger"]
    at = micros(limited.world.clock.now())
    used = {
        key.partition("/")[0]: Bucket.of_numbers(numbers).used(LIMITS.limits[key.partition("/")[0]].rate, at)
        for key, numbers in kept_now["buckets"].items()
    }
    assert used["newOrders"] == used["certificatesPerDomain"] == 2
    assert kept_now["flights"] == {}
