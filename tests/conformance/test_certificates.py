"""cert-manager's conformance suite for Certificates, as a table: each row for each of our issuers.

Its rows for ACMEUseARI, Ingress, Gateway and ListenerSet need kinds of issuers and of objects that are not
served here yet; they are listed in `NOT_FOR_THESE`, so that none is forgotten.

Source: cert-manager `test/e2e/suite/conformance/certificates`, `test/e2e/framework/helper/validation`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources import conditions
from certwright.resources.certificate import (
    Certificate,
    OtherName,
    PrivateKeySpec,
)
from certwright.resources.core import Secret, SecretMeta
from certwright.resources.issuer import CAIssuer, IssuerSpec, SelfSignedIssuer
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATES,
    CLUSTER_ISSUERS,
    ISSUERS,
    SECRETS,
)
from conformance import openssl
from controllers.scene import make_certificate, make_cluster_issuer, make_issuer
from issuers.authority import new_root
from support.world import World, make_world

CLUSTER_NAMESPACE = "kube-system"
ISSUER = "signer"

RSA = PrivateKeySpec()
ECDSA = PrivateKeySpec(algorithm="ECDSA")
ED25519 = PrivateKeySpec(algorithm="Ed25519")
DOMAIN = "web.example.com"
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


@dataclass(frozen=True, slots=True)
class Suite:
    """A world with one issuer that is ready."""

    world: World
    reference: IssuerReference
    is_ca: bool

    async def issue(self, **spec: Any) -> None:
        """Create the Certificate `web` and let everything run."""
        made = make_certificate("web", ISSUER, **{**spec, "issuer_ref": self.reference})
        await self.world.create(CERTIFICATES, made)
        await self.world.settle()


@pytest.fixture(params=["CA, Issuer", "CA, ClusterIssuer", "SelfSigned, Issuer", "SelfSigned, ClusterIssuer"])
async def suite(request: pytest.FixtureRequest) -> AsyncIterator[Suite]:
    """Each of our issuers."""
    what, kind = str(request.param).split(", ")
    specs = {
        "CA": IssuerSpec(ca=CAIssuer(secret_name="ca")),
        "SelfSigned": IssuerSpec(self_signed=SelfSignedIssuer()),
    }
    is_cluster = kind == "ClusterIssuer"
    async with make_world(cluster_resource_namespace=CLUSTER_NAMESPACE) as world:
        meta = SecretMeta(name="ca", namespace=CLUSTER_NAMESPACE if is_cluster else "default")
        secret = Secret(metadata=meta, type="kubernetes.io/tls", data=new_root("Root").secret())
        await world.create(SECRETS, secret)
        if is_cluster:
            await world.create(CLUSTER_ISSUERS, make_cluster_issuer(ISSUER, specs[what]))
        else:
            await world.create(ISSUERS, make_issuer(ISSUER, specs[what]))
        await world.settle()
        yield Suite(world, IssuerReference(name=ISSUER, kind=kind), what == "CA")


def test_every_row_of_the_suite_is_here() -> None:
    numbers = [number for number, _ in ROWS] + list(NOT_FOR_THESE) + [30, 31]
    assert sorted(numbers) == list(range(1, 32))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
async def test_a_certificate_of_this_shape_is_issued(row: tuple[int, str], suite: Suite) -> None:
    await suite.issue(**ROWS[row])
    await validate(suite)


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


async def test_a_further_dns_name_is_issued_anew(suite: Suite) -> None:
    await suite.issue()
    patch = {"spec": {"dnsNames": [DOMAIN, "api.example.com"]}}
    await suite.world.client.patch(CERTIFICATES, "web", "default", patch)
    await suite.world.settle()
    leaf = await validate(suite)
    assert set(leaf.dns_names) == {DOMAIN, "api.example.com"}
    assert (await suite.world.certificate("web")).status.revision == 2


# --- the validations that follow each issue ---------------------------------------------------------------


async def validate(suite: Suite) -> CertificateFacts:
    """Check all that cert-manager's helpers check; the leaf."""
    certificate, secret = await suite.world.certificate("web"), await suite.world.secret("web")
    leaf = read_chain(secret.data["tls.crt"])[0]
    check_status(certificate, leaf)
    check_secret(certificate, secret)
    check_key(certificate, secret, leaf)
    check_names(certificate, leaf)
    check_terms(certificate, leaf)
    await check_trust(suite, secret)
    return leaf


def check_status(certificate: Certificate, leaf: CertificateFacts) -> None:
    """Ready, of this generation, with the dates that the certificate has."""
    ready = conditions.find(certificate.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "Ready"), certificate.status.conditions
    assert ready.observed_generation == certificate.metadata.generation
    assert conditions.find(certificate.status.conditions, "Issuing") is None
    assert certificate.status.not_after == leaf.not_after
    assert certificate.status.not_before == leaf.not_before
    assert certificate.status.renewal_time is not None
    assert leaf.not_before < certificate.status.renewal_time < leaf.not_after


def check_secret(certificate: Certificate, secret: Secret) -> None:
    """The keys of its data, its label, whose it is and from which issuer."""
    reference = certificate.spec.issuer_ref
    assert set(secret.data) == {"tls.crt", "tls.key", "ca.crt"}
    assert secret.type == "kubernetes.io/tls"
    assert secret.metadata.labels["controller.cert-manager.io/fao"] == "true"
    expected = {
        "certificate-name": "web",
        "issuer-name": reference.name,
        "issuer-kind": reference.kind,
        "issuer-group": "cert-manager.io",
        "common-name": certificate.spec.common_name,
        "alt-names": ",".join(certificate.spec.dns_names),
        "ip-sans": ",".join(certificate.spec.ip_addresses),
        "uri-sans": ",".join(certificate.spec.uris),
    }
    if certificate.spec.literal_subject:
        expected["common-name"] = DOMAIN
    for name, value in expected.items():
        assert secret.metadata.annotations[f"cert-manager.io/{name}"] == value


def check_key(certificate: Certificate, secret: Secret, leaf: CertificateFacts) -> None:
    """The key is as the spec wants it, in the encoding wanted, and the certificate's."""
    key, spec = load_private_key(secret.data["tls.key"]), certificate.spec.key
    assert public_key_der(key) == leaf.public_key_der
    match spec.algorithm_or_default:
        case "RSA":
            assert isinstance(key, rsa.RSAPrivateKey)
            assert key.key_size == spec.size_or_default
            assert secret.data["tls.key"].startswith(b"-----BEGIN RSA PRIVATE KEY-----")
        case "ECDSA":
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            assert key.curve.key_size == spec.size_or_default
            assert secret.data["tls.key"].startswith(b"-----BEGIN EC PRIVATE KEY-----")
        case _:
            assert isinstance(key, ed25519.Ed25519PrivateKey)
            assert secret.data["tls.key"].startswith(b"-----BEGIN PRIVATE KEY-----")


def check_names(certificate: Certificate, leaf: CertificateFacts) -> None:
    """Subject and alternative names."""
    spec = certificate.spec
    assert set(leaf.dns_names) == set(spec.dns_names)
    assert set(leaf.ip_addresses) == set(spec.ip_addresses)
    assert set(leaf.uris) == set(spec.uris)
    assert set(leaf.email_addresses) == set(spec.email_addresses)
    assert [(name.oid, name.utf8_value) for name in leaf.other_names] == [
        (name.oid, name.utf8_value) for name in spec.other_names
    ]
    if spec.literal_subject:
        check_literal_subject(leaf)
        return
    assert leaf.common_name == spec.common_name
    assert leaf.subject.organizations == (spec.subject.organizations if spec.subject else ())


def check_literal_subject(leaf: CertificateFacts) -> None:
    """RFC 4514 §2.1: the text begins with the last name of the sequence."""
    found = [(name.oid, name.value) for name in leaf.parsed.subject]
    assert found == [
        (NameOID.DOMAIN_COMPONENT, "com"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.DOMAIN_COMPONENT, "corp"),
        (NameOID.USER_ID, "jane"),
        (NameOID.ORGANIZATION_NAME, "Example, Inc."),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Spacé"),
        (NameOID.COMMON_NAME, DOMAIN),
    ]


def check_terms(certificate: Certificate, leaf: CertificateFacts) -> None:
    """How long, what for, and whether it may sign."""
    spec = certificate.spec
    assert leaf.is_ca == spec.is_ca
    assert abs(leaf.not_after - leaf.not_before - spec.requested_duration) <= timedelta(seconds=30)
    wanted = set(spec.usages) or {"digital signature", "key encipherment"}
    same = {"signing": "digital signature"}
    wanted = {same.get(usage, usage) for usage in wanted} | ({"cert sign"} if spec.is_ca else set())
    assert set(leaf.usages) == wanted
    basic = leaf.parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical


async def check_trust(suite: Suite, secret: Secret) -> None:
    """`ca.crt` is a root, and the chain leads to it: OpenSSL says so too."""
    chain, (ca, *more) = read_chain(secret.data["tls.crt"]), read_chain(secret.data["ca.crt"])
    assert not more
    assert ca.subject_text == ca.issuer_text
    if suite.is_ca:
        assert ca.subject_text == "CN=Root"
        assert chain[-1].issuer_text == "CN=Root"
    else:
        assert secret.data["ca.crt"] == secret.data["tls.crt"]
    await openssl.verify(secret.data["tls.crt"], secret.data["ca.crt"], suite.world.clock.now())
    ours, of_key = await openssl.public_keys(secret.data["tls.crt"], secret.data["tls.key"])
    assert ours == of_key
