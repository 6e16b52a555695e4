"""cert-manager's conformance suite for Kubernetes' CertificateSigningRequests, as a table: each row for each
of our signers.

Source: cert-manager `test/e2e/suite/conformance/certificatesigningrequests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, encode_private_key, generate, public_key_der
from certwright.resources.references import IssuerReference
from certwright.resources.request import (
    PRIVATE_KEY_SECRET,
    REQUEST_DURATION,
    REQUEST_IS_CA,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from certwright.resources.table import CERTIFICATE_SIGNING_REQUESTS
from conformance import openssl
from conformance.suites import DOMAIN, SUITES, Suite, suite_fixtures

ENABLED: Final = "*,certificatesigningrequests-issuer-ca,certificatesigningrequests-issuer-selfsigned"
USAGES: Final = ("digital signature", "key encipherment")
OTHER: Final = "api.example.com"
LONG: Final = ".".join(("a-label-of-thirty-characters-xx",) * 3) + ".example.com"
FOO: Final = "spiffe://cluster.local/ns/sandbox/sa/foo"


@dataclass(frozen=True, slots=True)
class Row:
    """What the CSR asks for, and what the request around it says."""

    plan: CsrPlan
    key: str = "RSA"
    usages: tuple[str, ...] = USAGES
    duration: str = ""
    expiration_seconds: int | None = None

    @property
    def life(self) -> timedelta:
        """The lifetime that comes of it."""
        if self.duration:
            return timedelta(hours=int(self.duration.removesuffix("h")))
        return timedelta(seconds=self.expiration_seconds or 90 * 86400)


ROWS: Final = {
    "one DNS name, RSA": Row(CsrPlan(dns_names=(DOMAIN,))),
    "one DNS name, ECDSA": Row(CsrPlan(dns_names=(DOMAIN,)), "ECDSA"),
    "one DNS name, Ed25519": Row(CsrPlan(dns_names=(DOMAIN,)), "Ed25519"),
    "one common name, RSA": Row(CsrPlan(common_name=DOMAIN)),
    "one common name, ECDSA": Row(CsrPlan(common_name=DOMAIN), "ECDSA"),
    "one common name, Ed25519": Row(CsrPlan(common_name=DOMAIN), "Ed25519"),
    "common name and IP": Row(CsrPlan(common_name=DOMAIN, ip_addresses=("127.0.0.1",))),
    "IP only": Row(CsrPlan(ip_addresses=("127.0.0.1", "2001:db8::1"))),
    "DNS name and IP": Row(CsrPlan(dns_names=(DOMAIN,), ip_addresses=("127.0.0.1",))),
    "a CA": Row(CsrPlan(common_name="Below", is_ca=True), usages=(*USAGES, "cert sign")),
    "email only": Row(CsrPlan(email_addresses=("alice@example.com",))),
    "common name and URI": Row(CsrPlan(common_name=DOMAIN, uris=(FOO,))),
    "two DNS names, one the common name": Row(CsrPlan(common_name=DOMAIN, dns_names=(DOMAIN, OTHER))),
    "DNS name and another common name": Row(CsrPlan(common_name=DOMAIN, dns_names=(OTHER,))),
    "duration by annotation": Row(CsrPlan(common_name=DOMAIN, dns_names=(DOMAIN,)), duration="216h"),
    "duration by field": Row(CsrPlan(common_name=DOMAIN, dns_names=(DOMAIN,)), expiration_seconds=333 * 60),
    "DNS name and duration": Row(CsrPlan(dns_names=(DOMAIN,)), duration="216h"),
    "wildcard": Row(CsrPlan(dns_names=("*.example.com",))),
    "wildcard and apex": Row(CsrPlan(dns_names=("*.example.com", "example.com"))),
    "URI only": Row(CsrPlan(uris=(FOO,))),
    "usages and common name": Row(
        CsrPlan(common_name=DOMAIN),
        usages=("digital signature", "data encipherment", "server auth", "client auth"),
    ),
    "a CA for long": Row(
        CsrPlan(common_name="Below", is_ca=True), usages=(*USAGES, "cert sign"), duration="7200h"
    ),
    "a long domain": Row(CsrPlan(dns_names=(LONG,))),
}


shared = pytest.mark.asyncio(loop_scope="module")
opened, suite = suite_fixtures(SUITES, enabled=ENABLED)


def signer_name(reference: IssuerReference) -> str:
    """How a CertificateSigningRequest calls that issuer."""
    if reference.kind == "ClusterIssuer":
        return f"clusterissuers.cert-manager.io/{reference.name}"
    return f"issuers.cert-manager.io/default.{reference.name}"


@pytest.mark.parametrize("name", ROWS)
@shared
async def test_a_certificate_of_this_shape_is_signed(name: str, suite: Suite) -> None:
    row, world = ROWS[name], suite.world
    key = generate(KeyPlan.of(row.key))
    pem = build_csr(replace(row.plan, usages=row.usages), key)
    meta = SecretMeta(name="key", namespace=suite.secrets_in)
    data = {"tls.key": encode_private_key(key)}
    await world.create(SECRETS, Secret(metadata=meta, type="Opaque", data=data))
    annotations = {PRIVATE_KEY_SECRET: "key", REQUEST_IS_CA: "true" if row.plan.is_ca else "false"}
    if row.duration:
        annotations[REQUEST_DURATION] = row.duration
    spec = CertificateSigningRequestSpec(
        request=pem,
        signer_name=signer_name(suite.reference),
        usages=row.usages,
        expiration_seconds=row.expiration_seconds,
    )
    request = CertificateSigningRequest(metadata=ObjectMeta(name="r", annotations=annotations), spec=spec)
    await world.create(CERTIFICATE_SIGNING_REQUESTS, request)
    approved: dict[str, Any] = {"type": "Approved", "status": "True", "reason": "Test"}
    body = {"status": {"conditions": [approved]}}
    await world.client.patch(CERTIFICATE_SIGNING_REQUESTS, "r", "", body, subresource="approval")
    await world.settle()
    obj = await world.get(CERTIFICATE_SIGNING_REQUESTS, "r")
    (leaf,) = read_chain(obj.status.certificate)
    assert leaf.public_key_der == public_key_der(key)
    check(row, leaf)
    ca = obj.status.certificate
    if suite.is_ca:
        ca = (await world.secret("ca", suite.secrets_in)).data["tls.crt"]
    await openssl.verify(obj.status.certificate, ca, world.clock.now())


def check(row: Row, leaf: CertificateFacts) -> None:
    """Compare the certificate with what was asked for."""
    plan = row.plan
    assert leaf.common_name == plan.common_name
    assert set(leaf.dns_names) == set(plan.dns_names)
    assert set(leaf.ip_addresses) == set(plan.ip_addresses)
    assert set(leaf.uris) == set(plan.uris)
    assert set(leaf.email_addresses) == set(plan.email_addresses)
    assert leaf.is_ca == plan.is_ca
    assert set(leaf.usages) == set(row.usages)
    assert abs(leaf.not_after - leaf.not_before - row.life) <= timedelta(seconds=30)
