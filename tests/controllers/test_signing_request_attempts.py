"""Kubernetes' CertificateSigningRequests at an issuer that fails: they count as attempts, and wait, like
CertificateRequests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from certwright.kube.api.meta import ObjectMeta
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources.certificate import Certificate
from certwright.resources.request import CertificateSigningRequest, CertificateSigningRequestSpec
from certwright.resources.retry import read_breaker
from certwright.resources.table import CERTIFICATE_SIGNING_REQUESTS, CERTIFICATES, CLUSTER_ISSUERS
from controllers.fake_vault import SIGN, VaultWorld, vault_world
from controllers.scene import make_certificate

ENABLED = "*,certificatesigningrequests-issuer-vault"
USAGES = ("digital signature", "server auth")
MINUTE = timedelta(minutes=1)
APPROVED = {"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "by hand"}


@pytest.fixture
async def away() -> AsyncIterator[VaultWorld]:
    """A ready issuer whose server does not answer any more."""
    async with vault_world(enabled=ENABLED) as vault:
        vault.vault.is_away = True
        yield vault


def certificate(name: str) -> Certificate:
    return make_certificate(name, "vault", kind="ClusterIssuer")


async def ask(vault: VaultWorld, name: str) -> None:
    """An approved request to the issuer."""
    plan = CsrPlan(common_name=name, dns_names=("a.example.com",), usages=USAGES)
    request = CertificateSigningRequest(
        metadata=ObjectMeta(name=name),
        spec=CertificateSigningRequestSpec(
            request=build_csr(plan, generate(KeyPlan.of("ECDSA"))),
            signer_name="clusterissuers.cert-manager.io/vault",
            usages=USAGES,
        ),
    )
    client = vault.world.client
    await vault.world.create(CERTIFICATE_SIGNING_REQUESTS, request)
    approval = {"status": {"conditions": [APPROVED]}}
    await client.patch(CERTIFICATE_SIGNING_REQUESTS, name, "", approval, subresource="approval")
    await vault.world.settle()


async def signed(vault: VaultWorld) -> int:
    requests = (await vault.world.client.list(CERTIFICATE_SIGNING_REQUESTS)).items
    return sum(bool(request.status.certificate) for request in requests)


async def events_of(vault: VaultWorld, name: str) -> list[tuple[str, str]]:
    events = await vault.world.events()
    return [(event.reason, event.message) for event in events if event.involved_object.name == name]


async def test_however_many_wait_an_issuer_that_fails_gets_few_attempts(away: VaultWorld) -> None:
    # Its health check is answered, so that it is tried.
    away.vault.is_away, away.vault.is_broken = False, True
    for number in range(20):
        await ask(away, f"mine{number}")
    await away.world.advance(59 * MINUTE)
    assert 5 <= away.vault.calls[SIGN] <= 12
    record = read_breaker((await away.world.get(CLUSTER_ISSUERS, "vault")).metadata.annotations)
    assert record is not None
    assert record.is_open
    assert len(record.attempts) == away.vault.calls[SIGN]


async def test_they_are_signed_when_the_issuer_works_again(away: VaultWorld) -> None:
    for number in range(20):
        await ask(away, f"mine{number}")
    await away.world.advance(10 * MINUTE)
    away.vault.is_away = False
    await away.world.advance(3 * MINUTE)
    assert await signed(away) == 20


async def test_one_that_waits_for_the_breaker_says_why(away: VaultWorld) -> None:
    away.vault.is_away, away.vault.is_broken = False, True
    for name in ("a", "b", "c"):
        await away.world.create(CERTIFICATES, certificate(name))
    await away.world.advance(MINUTE)
    before = away.vault.calls[SIGN]
    await ask(away, "mine")
    assert away.vault.calls[SIGN] == before
    ((reason, message),) = await events_of(away, "mine")
    assert reason == "IssuerFailing"
    assert message.startswith('not asking the issuer, because ClusterIssuer "vault" is failing;')
    await away.world.advance(30 * MINUTE)
    assert len(await events_of(away, "mine")) <= 2


async def test_a_deleted_one_waits_no_longer(away: VaultWorld) -> None:
    away.vault.is_away, away.vault.is_broken = False, True
    for number in range(4):
        await ask(away, f"mine{number}")
    await away.world.advance(MINUTE)
    assert waiting(away) == 4
    for number in range(4):
        await away.world.client.delete(CERTIFICATE_SIGNING_REQUESTS, f"mine{number}")
    await away.world.settle()
    assert waiting(away) == 0


def waiting(vault: VaultWorld) -> int:
    text = vault.world.manager.metrics.take()().decode()
    name = 'certwright_issuer_waiting_certificates{issuer_name="vault"'
    (line,) = [line for line in text.splitlines() if line.startswith(name)]
    return int(line.split()[-1])
