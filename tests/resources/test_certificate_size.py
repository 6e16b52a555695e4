"""How many names a Certificate may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from certwright.kube.api.errors import Invalid
from certwright.pki import csr
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, generate
from certwright.resources import certificate_rules
from certwright.resources.table import CERTIFICATES
from certwright.resources.validation import validate
from controllers.scene import make_certificate
from support.world import make_world

NAMES = [f"a{number}.example.com" for number in range(100_000)]
TOO_MANY = "Too many: 100000: a signing request may have 65536 bytes, some 3000 names; distribute them over"


def errors(**spec: Any) -> list[str]:
    base = {"secretName": "web-tls", "issuerRef": {"name": "ca"}, "commonName": "web"}
    new = {"metadata": {"name": "web", "namespace": "default"}, "spec": base | spec}
    return [str(error) for error in validate("Certificate", "cert-manager.io", new, None)]


def test_the_limit_is_that_of_signing_requests() -> None:
    assert certificate_rules.MAX_REQUEST_BYTES == csr.MAX_BYTES


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"dnsNames": NAMES}, "spec.dnsNames"),
        ({"uris": [f"https://{name}" for name in NAMES], "dnsNames": NAMES}, "spec.uris"),
        ({"emailAddresses": [f"a@{name}" for name in NAMES]}, "spec.emailAddresses"),
        ({"ipAddresses": ["10.0.0.1"] * 100_000}, "spec.ipAddresses"),
        ({"otherNames": [{"oid": "1.2.3", "utf8Value": name} for name in NAMES]}, "spec.otherNames"),
        ({"subject": {"organizations": NAMES}}, "spec.subject.organizations"),
        (
            {"isCA": True, "nameConstraints": {"excluded": {"dnsDomains": NAMES}}},
            "spec.nameConstraints.excluded.dnsDomains",
        ),
    ],
)
def test_names_that_fit_into_no_request_are_refused_with_one_error(spec: dict[str, Any], path: str) -> None:
    (error,) = errors(**spec)
    assert error.startswith(f"{path}: {TOO_MANY}")


def test_a_list_of_usages_that_repeats_them_is_refused() -> None:
    assert errors(usages=["server auth"] * 150_000) == [
        "spec.usages: Too many: 150000: must have at most 46 items"
    ]


def test_whatever_a_request_can_hold_is_accepted() -> None:
    names = tuple(f"a{number}.example.com" for number in range(3400))
    addresses = ("255.255.255.255",) * 50
    plan = CsrPlan(dns_names=names, ip_addresses=addresses)
    build_csr(plan, generate(KeyPlan.of("ECDSA")))
    assert errors(dnsNames=list(names), ipAddresses=list(addresses)) == []


async def test_a_client_gets_an_error_with_the_field() -> None:
    async with make_world(controllers=False) as world:
        with pytest.raises(Invalid) as caught:
            await world.client.create(CERTIFICATES, make_certificate("web", "ca", dns_names=tuple(NAMES)))
        assert caught.value.details is not None
        assert [cause.field for cause in caught.value.details.causes] == ["spec.dnsNames"]
