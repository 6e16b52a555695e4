"""Every kind of issuer passes the same checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from certwright.issuers.table import ISSUERS, kind_of
from certwright.resources.issuer import ISSUER_TYPES, CAIssuer, IssuerSpec, SelfSignedIssuer
from conformance.check_issuer import CHECKS, Setup
from issuers.authority import new_root


@pytest.fixture(params=["ca: root", "ca: RSA root", "ca: intermediate", "selfSigned"])
def setup(request: pytest.FixtureRequest) -> Setup:
    """An issuer of each kind."""
    kind = str(request.param)
    if kind == "selfSigned":
        issuer_setup: Setup = request.getfixturevalue("self_setup")
        return issuer_setup
    root, intermediate = request.getfixturevalue("root"), request.getfixturevalue("intermediate")
    secrets = {
        "ca: root": root.secret,
        "ca: RSA root": new_root("Root", "RSA").secret,
        "ca: intermediate": lambda: intermediate.secret(root),
    }
    made: Setup = request.getfixturevalue("ca_setup")(secrets[kind]())
    return made


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_behaves_as_an_issuer(check: Callable[[Setup], Awaitable[None]], setup: Setup) -> None:
    await check(setup)


def test_every_kind_of_issuer_has_an_entry() -> None:
    assert set(ISSUERS) == set(ISSUER_TYPES)


def test_the_kind_is_read_off_the_spec() -> None:
    assert kind_of(IssuerSpec(ca=CAIssuer(secret_name="a"))) == "ca"
    assert kind_of(IssuerSpec(self_signed=SelfSignedIssuer())) == "selfSigned"
    assert kind_of(IssuerSpec()) == ""
