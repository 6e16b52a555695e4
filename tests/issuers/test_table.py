"""Which module signs for which kind of issuer."""

from __future__ import annotations

import pytest

from certwright.issuers.contract import Pending
from certwright.issuers.table import ISSUERS, NotSupported, kind_of
from certwright.resources.issuer import ISSUER_TYPES, CAIssuer, IssuerSpec, SelfSignedIssuer
from conformance.check_issuer import Setup


def test_every_kind_of_issuer_has_an_entry() -> None:
    assert set(ISSUERS) == set(ISSUER_TYPES)


def test_the_kind_is_read_off_the_spec() -> None:
    assert kind_of(IssuerSpec(ca=CAIssuer(secret_name="a"))) == "ca"
    assert kind_of(IssuerSpec(self_signed=SelfSignedIssuer())) == "selfSigned"
    assert kind_of(IssuerSpec()) == ""


@pytest.mark.parametrize("kind", ["venafi"])
async def test_a_kind_to_come_says_that_it_is_not_there_yet(kind: str, self_setup: Setup) -> None:
    issuer = ISSUERS[kind]
    assert isinstance(issuer, NotSupported)
    checked = await issuer.check(self_setup.view, self_setup.tools)
    assert (checked.ready, checked.reason) == (False, "NotSupported")
    supported = "acme, ca, vault, selfSigned"
    assert checked.message == f"{kind.capitalize()} issuers are not supported yet; supported: {supported}"
    outcome = await issuer.sign(self_setup.view, self_setup.request(), self_setup.tools)
    assert outcome == Pending("NotSupported", checked.message)
