"""cert-manager's conformance suite for Certificates, as a table: each row for each of our issuers.

Its rows for ACMEUseARI, Ingress, Gateway and ListenerSet need kinds of issuers and of objects that are not
served here yet; they are listed in `NOT_FOR_THESE`, so that none is forgotten.

Source: cert-manager `test/e2e/suite/conformance/certificates`, `test/e2e/framework/helper/validation`.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from cryptography.x509.oid import NameOID

from certwright.kube.api.core import SECRETS
from certwright.pki.certificates import CertificateFacts
from certwright.resources.certificate import OtherName, PrivateKeySpec
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES
from conformance.suites import DOMAIN, SUITES, Suite, suite_fixtures, validate

RSA = PrivateKeySpec()
ECDSA = PrivateKeySpec(algorithm="ECDSA")
ED25519 = PrivateKeySpec(algorithm="Ed25519")
LONG = ".".join(("a-label-of-thirty-characters-xx",) * 3) + ".example.com"

NOT_FOR_THESE: Final = {
    23: "ACMEUseARI",
    24: "Ingress",
    25: "Ingress",
    26: "Gateway",
    27: "Gateway",
    28: "Gateway",
    29: "ListenerSet",
}
"""Rows that the suites of CA and SelfSigned leave out, with the feature that they need."""

ROWS: Final[dict[tuple[int, str], dict[str, Any]]] = {
    (1, "one DNS name, all defaults"): {"private_key": None},
    (2, "a CA certificate"): {"is_ca": True, "common_name": "Below", "private_key": RSA},
    (3, "ECDSA, one DNS name"): {},
    (4, "Ed25519, one DNS name"): {"private_key": ED25519},
    (5, "one common name"): {"dns_names": (), "common_name": DOMAIN, "private_key": RSA},
    (6, "otherName SANs and email"): {
        "common_name": "someone",
        "email_addresses": ("someone@example.com",),
        "other_names": (
            OtherName(oid="1.3.6.1.4.1.311.20.2.3", utf8_value="upn@example.local"),
            OtherName(oid="1.2.840.113556.1.4.221", utf8_value="sAMAccountName"),
        ),
    },
    (7, "literalSubject and DNS"): {
        "literal_subject": "CN=web.example.com,OU=Spacé,O=Example\\, Inc.,UID=jane,DC=corp,DC=example,DC=com"
    },
    (8, "ECDSA, common name"): {"dns_names": (), "common_name": DOMAIN},
    (9, "Ed25519, common name"): {"dns_names": (), "common_name": DOMAIN, "private_key": ED25519},
    (10, "IP addresses only"): {"dns_names": (), "ip_addresses": ("127.0.0.1", "2001:db8::1")},
    (11, "DNS name and IP address"): {"ip_addresses": ("127.0.0.1",)},
    (12, "common name and IP address"): {
        "dns_names": (),
        "common_name": DOMAIN,
        "ip_addresses": ("127.0.0.1",),
    },
    (13, "email only"): {"dns_names": (), "email_addresses": ("alice@example.com",)},
    (14, "common name and URI"): {
        "dns_names": (),
        "common_name": DOMAIN,
        "uris": ("spiffe://cluster.local/ns/sandbox/sa/foo",),
    },
    (15, "two DNS names, one also the common name"): {
        "common_name": DOMAIN,
        "dns_names": (DOMAIN, "api.example.com"),
    },
    (16, "DNS name and another common name"): {"common_name": DOMAIN, "dns_names": ("api.example.com",)},
    (17, "DNS name and duration"): {"duration": "216h"},
    (18, "wildcard"): {"dns_names": ("*.example.com",)},
    (19, "URI only"): {"dns_names": (), "uris": ("spiffe://cluster.local/ns/sandbox/sa/foo",)},
    (20, "arbitrary usages"): {
        "usages": ("signing", "data encipherment", "server auth", "client auth"),
        "common_name": DOMAIN,
    },
    (21, "a long domain"): {"dns_names": (LONG,)},
    (22, "wildcard and apex"): {"dns_names": ("*.example.com", "example.com")},
}
"""What is asked for besides one DNS name and an ECDSA key, by the number in cert-manager's suite. Two further
rows, 30 and 31, are stories with tests of their own."""


shared = pytest.mark.asyncio(loop_scope="module")
opened, suite = suite_fixtures(SUITES)


def test_every_row_of_the_suite_is_here() -> None:
    numbers = [number for number, _ in ROWS] + list(NOT_FOR_THESE) + [30, 31]
    assert sorted(numbers) == list(range(1, 32))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
@shared
async def test_a_certificate_of_this_shape_is_issued(row: tuple[int, str], suite: Suite) -> None:
    await suite.issue(**ROWS[row])
    leaf = await validate(suite)
    if "literal_subject" in ROWS[row]:
        check_literal_subject(leaf)


def check_literal_subject(leaf: CertificateFacts) -> None:
    """RFC 4514 §2.1: the text begins with the last name of the sequence."""
    attributes = [(name.oid, name.value) for name in leaf.parsed.subject]
    assert attributes == [
        (NameOID.DOMAIN_COMPONENT, "com"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.DOMAIN_COMPONENT, "corp"),
        (NameOID.USER_ID, "jane"),
        (NameOID.ORGANIZATION_NAME, "Example, Inc."),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Spacé"),
        (NameOID.COMMON_NAME, DOMAIN),
    ]


@shared
async def test_the_same_key_is_issued_again_with_rotation_policy_never(suite: Suite) -> None:
    spec = {"private_key": PrivateKeySpec(algorithm="ECDSA", rotation_policy="Never")}
    await suite.issue(**spec)
    first = (await suite.world.secret("web")).data
    await suite.world.client.delete(CERTIFICATES, "web", "default")
    await suite.world.settle()
    for request in (await suite.world.client.list(CERTIFICATE_REQUESTS, "default")).items:
        await suite.world.client.delete(CERTIFICATE_REQUESTS, request.metadata.name, "default")
    await suite.world.client.patch(SECRETS, "web", "default", {"data": {"tls.crt": ""}})
    await suite.issue(**spec)
    await validate(suite)
    second = (await suite.world.secret("web")).data
    assert second["tls.key"] == first["tls.key"]
    assert second["tls.crt"] != first["tls.crt"]


@shared
async def test_a_further_dns_name_is_issued_anew(suite: Suite) -> None:
    await suite.issue()
    patch = {"spec": {"dnsNames": [DOMAIN, "api.example.com"]}}
    await suite.world.client.patch(CERTIFICATES, "web", "default", patch)
    await suite.world.settle()
    leaf = await validate(suite)
    assert set(leaf.dns_names) == {DOMAIN, "api.example.com"}
    assert (await suite.world.certificate("web")).status.revision == 2
