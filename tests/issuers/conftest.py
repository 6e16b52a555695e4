"""CAs that are made once, and issuers that sign with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from certwright.issuers.ca import CA
from certwright.issuers.contract import IssuerView
from certwright.issuers.selfsigned import SelfSigned
from certwright.resources.issuer import CAIssuer, IssuerSpec, SelfSignedIssuer
from conformance.check_issuer import Setup
from issuers.authority import Authority, new_root


@pytest.fixture(scope="session")
def root() -> Authority:
    return new_root("Root")


@pytest.fixture(scope="session")
def intermediate(root: Authority) -> Authority:
    return root.issue("Intermediate")


def view(spec: IssuerSpec) -> IssuerView:
    return IssuerView(
        kind="Issuer",
        name="my-issuer",
        namespace="default",
        uid="uid-1",
        generation=1,
        resource_version="7",
        spec=spec,
    )


@pytest.fixture
def ca_setup() -> Callable[[dict[str, bytes] | None], Setup]:
    """A `ca` issuer whose Secret `ca-pair` holds that."""

    def make(secret: dict[str, bytes] | None) -> Setup:
        spec = IssuerSpec(
            ca=CAIssuer(
                secret_name="ca-pair",
                crl_distribution_points=("http://crl.example/a.crl",),
                ocsp_servers=("http://ocsp.example",),
                issuing_certificate_urls=("http://ca.example/ca.crt",),
            )
        )
        return Setup(CA(), view(spec), {} if secret is None else {"ca-pair": secret})

    return make


@pytest.fixture
def self_setup() -> Setup:
    return Setup(SelfSigned(), view(IssuerSpec(self_signed=SelfSignedIssuer())))
