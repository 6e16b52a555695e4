"""The page of a certificate, as users with many or few rights see it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from certwright.pki.certificates import read_certificate
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from support.visitor import visitor
from support.world import World, make_world

READ = ("get list", "cert-manager.io", "certificates", "")


@pytest.fixture
async def issued() -> AsyncIterator[World]:
    """A world with the certificate default/web."""
    async with make_world() as world:
        await world.create(ISSUERS, make_issuer("root"))
        await world.create(CERTIFICATES, make_certificate("web", "root"))
        await world.settle()
        yield world


async def test_the_page_shows_state_chain_history_content_and_events(issued: World) -> None:
    admin = await visitor(issued)
    page = await admin.get("/ui/certificates/default/web")
    facts = read_certificate((await issued.secret("web")).data["tls.crt"])
    assert page.status == 200
    expected = (
        "ready, valid until",
        "Certificate generation 1",
        "Request web-1",
        "Approval approved",
        "Signed by Issuer root",
        "web-1 2026-01-01 00:00 UTC",
        "Issued",
        facts.fingerprint.hex(":").upper(),
        "web.example.com",
        "digital signature",
        "certwright renew web -n default",
        "apiVersion: cert-manager.io/v1",
    )
    assert [text for text in expected if text not in page.text] == []
    assert "PRIVATE KEY" not in page.html
    assert "managedFields" not in page.html
