"""A certificate that begins in the future: not Ready, never in place of one that is valid, and no storm."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cryptography import x509

from certwright.acme.protocol.messages import Action
from certwright.kube.api.core import SECRETS
from certwright.pki.certificates import read_certificate
from controllers.acme.fake_world import FakeWorld, fake_world


def begins_later(builder: x509.CertificateBuilder, _: x509.CertificateSigningRequest) -> Any:
    """A certificate that is valid in ten days."""
    certificate_builder: Any = builder
    begins = certificate_builder._not_valid_before
    certificate_builder._not_valid_before = None
    return certificate_builder.not_valid_before(begins + timedelta(days=10))


async def reason_of(fake: FakeWorld) -> tuple[str, str]:
    """Status and reason of the condition Ready."""
    ready = await fake.world.condition("web", "Ready")
    return ready.status, ready.reason


async def test_it_is_ready_when_it_becomes_valid_and_not_before() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        fake.ca.tamper = begins_later
        await fake.issue("web")
        await fake.world.advance(timedelta(days=9))
        assert await reason_of(fake) == ("False", "NotYetValid")
        await fake.world.advance(timedelta(days=2))
        assert await reason_of(fake) == ("True", "Ready")
        assert fake.ca.counted()[Action.NEW_ORDER] == 1


async def test_it_does_not_replace_one_that_is_valid() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        await fake.issue("web")
        await fake.world.advance(timedelta(minutes=1))
        first = read_certificate((await fake.world.secret("web")).data["tls.crt"])
        fake.ca.tamper = begins_later
        await fake.world.advance(timedelta(days=65))
        assert fake.ca.counted()[Action.NEW_ORDER] == 2
        assert read_certificate((await fake.world.secret("web")).data["tls.crt"]) == first
        assert await reason_of(fake) == ("True", "Ready")
        assert "the present one stays in use until 2026-03-1" in await fake.message_of()
        await fake.start()
        await fake.world.advance(timedelta(days=7))
        now = read_certificate((await fake.world.secret("web")).data["tls.crt"])
        assert now != first
        assert now.not_before <= fake.world.clock.now()
        assert await reason_of(fake) == ("True", "Ready")
        assert fake.ca.counted()[Action.NEW_ORDER] == 2


async def test_it_replaces_one_that_is_gone() -> None:
    async with fake_world() as fake:
        await fake.issuer()
        await fake.issue("web")
        await fake.world.advance(timedelta(minutes=1))
        fake.ca.tamper = begins_later
        await fake.world.client.delete(SECRETS, "web", "default")
        await fake.world.advance(timedelta(minutes=1))
        assert "web" in await fake.secret_names()
        assert await reason_of(fake) == ("False", "NotYetValid")
