"""Which module signs for which kind of issuer."""

from __future__ import annotations

from certwright.issuers.table import ISSUERS, kind_of
from certwright.resources.issuer import ISSUER_TYPES, CAIssuer, IssuerSpec, SelfSignedIssuer


def test_every_kind_of_issuer_has_an_entry() -> None:
    assert set(ISSUERS) == set(ISSUER_TYPES)


def test_the_kind_is_read_off_the_spec() -> None:
    assert kind_of(IssuerSpec(ca=CAIssuer(secret_name="a"))) == "ca"
    assert kind_of(IssuerSpec(self_signed=SelfSignedIssuer())) == "selfSigned"
    assert kind_of(IssuerSpec()) == ""
