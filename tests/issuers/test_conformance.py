"""Every kind of issuer passes the same checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

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
