"""The check of an issuer and the probes of its breaker: the success of one ends the wait of the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from certwright.kube.api import conditions
from certwright.kube.api.meta import ObjectKey
from certwright.resources.references import IssuerReference
from certwright.resources.retry import BreakerRecord, read_breaker
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from controllers.external_issuer import mark
from controllers.fake_vault import SIGN, VaultWorld, vault_world
from controllers.scene import make_certificate
from support.world import World

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture
async def away() -> AsyncIterator[VaultWorld]:
    """Five certificates wait for a server that does not answer any more."""
    async with vault_world() as vault:
        vault.vault.is_away = True
        for number in range(5):
            certificate = make_certificate(f"web{number}", "vault", kind="ClusterIssuer")
            await vault.world.create(CERTIFICATES, certificate)
        await vault.world.settle()
        yield vault


async def record(vault: VaultWorld) -> BreakerRecord | None:
    return read_breaker((await vault.world.get(CLUSTER_ISSUERS, "vault")).metadata.annotations)


async def is_verified(vault: VaultWorld) -> bool:
    issuer = await vault.world.get(CLUSTER_ISSUERS, "vault")
    return conditions.is_true(issuer.status.conditions, "Ready")


async def change(vault: VaultWorld) -> None:
    """Change the issuer's spec, so that it is checked now."""
    patch = {"spec": {"vault": {"serverName": "vault.internal"}}}
    await vault.world.client.patch(CLUSTER_ISSUERS, "vault", "", patch)
    await vault.world.settle()


async def test_an_answered_probe_has_the_issuer_checked(away: VaultWorld) -> None:
    await away.world.advance(4 * SECOND)
    await change(away)
    assert not await is_verified(away)
    away.vault.is_away = False
    open_one = await record(away)
    assert open_one is not None
    assert open_one.is_open
    # The next check by itself is 15 s after the last one; probes are seconds apart still.
    await away.world.advance(6 * SECOND)
    assert await is_verified(away)


async def test_an_answered_check_ends_the_pause_between_probes(away: VaultWorld) -> None:
    await away.world.advance(65 * MINUTE)
    assert not await is_verified(away)
    before = await record(away)
    assert before is not None
    assert before.next_probe is not None
    # Just after a probe: the next one is two minutes away, the next check 15 s.
    await away.world.advance_to(before.next_probe + SECOND)
    after = await record(away)
    assert after is not None
    assert after.next_probe is not None
    assert after.next_probe - away.world.clock.now() > 90 * SECOND
    away.vault.is_away = False
    await away.world.advance(30 * SECOND)
    assert all([await away.world.is_ready(f"web{number}") for number in range(5)])
    assert await record(away) is None


async def test_certificates_that_do_not_ask_any_more_delay_the_others_for_a_minute(away: VaultWorld) -> None:
    breaker = away.world.manager.wiring.gate.breaker_at(ObjectKey("", "vault"))
    assert breaker is not None
    first = {ObjectKey("default", f"gone{number}"): None for number in range(3)}
    breaker._waiting = first | breaker._waiting
    await away.world.advance(10 * SECOND)
    away.vault.is_away = False
    await away.world.advance(10 * SECOND)
    await away.world.advance(MINUTE)
    assert all([await away.world.is_ready(f"web{number}") for number in range(5)])


async def test_a_check_that_fails_ends_no_pause(away: VaultWorld) -> None:
    await away.world.advance(30 * MINUTE)
    away.vault.is_closed, away.vault.is_away = True, False
    before = away.vault.calls[SIGN]
    await change(away)
    breaker = await record(away)
    assert not await is_verified(away)
    assert breaker is not None
    assert breaker.state == "Open"
    assert away.vault.calls[SIGN] == before


async def test_an_external_issuer_that_fails_holds_no_other_certificate(world: World) -> None:
    issuer = IssuerReference(name="thing", kind="Thing", group="example.com")
    for name in ("a", "b", "c", "d"):
        await world.add(CERTIFICATES, make_certificate(name, "thing", issuer_ref=issuer))
        await mark(world, f"{name}-1", "Failed")
        assert (await world.certificate(name)).status.failed_issuance_attempts == 1


async def test_a_limit_of_0_disables_the_breaker(away: VaultWorld) -> None:
    await away.world.start_controllers(issuer_attempts_per_hour=0)
    assert away.world.manager.wiring.gate.states() == []


async def test_a_negative_limit_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="negative"):
        await world.start_controllers(issuer_attempts_per_hour=-1)
