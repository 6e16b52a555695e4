"""The check of an issuer and the probes of its breaker: the success of one ends the wait of the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from certwright.kube.api import conditions
from certwright.kube.api.meta import ObjectKey
from certwright.resources.breaker import BreakerRecord, read_breaker
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from controllers.fake_vault import SIGN, VaultWorld, vault_world
from controllers.scene import make_certificate

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
    assert away.world.controllers is not None
    circuits = away.world.controllers.wiring.gate.circuits
    breaker, now = circuits.at(ObjectKey("", "vault")), away.world.clock.now()
    assert breaker is not None
    for number in range(3):
        breaker.wait(ObjectKey("default", f"gone{number}"), now + timedelta(hours=1), now, now)
    await away.world.advance(10 * SECOND)
    away.vault.is_away = False
    await away.world.advance(10 * SECOND)
    assert not await away.world.is_ready("web0")
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
