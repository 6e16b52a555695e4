"""Shapes of certificates that cert-manager's suite has no row for, through the whole stack, and what OpenSSL
reads in them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

import pytest

from certwright.kube.api import conditions
from certwright.pki.certificates import read_chain
from certwright.resources.certificate import (
    KEY_USAGES,
    NameConstraintItem,
    NameConstraints,
    OtherName,
    PrivateKeySpec,
    X509Subject,
)
from certwright.resources.issuer import CAIssuer, IssuerSpec, SelfSignedIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from conformance import openssl
from conformance.suites import SUITES, Suite, open_suite, suite_fixtures, validate
from controllers.scene import make_ca_issuer, make_certificate, make_issuer

TEXTS: Final = {
    "signing": "Digital Signature",
    "digital signature": "Digital Signature",
    "content commitment": "Non Repudiation",
    "key encipherment": "Key Encipherment",
    "key agreement": "Key Agreement",
    "data encipherment": "Data Encipherment",
    "cert sign": "Certificate Sign",
    "crl sign": "CRL Sign",
    "encipher only": "Encipher Only",
    "decipher only": "Decipher Only",
    "any": "Any Extended Key Usage",
    "server auth": "TLS Web Server Authentication",
    "client auth": "TLS Web Client Authentication",
    "code signing": "Code Signing",
    "email protection": "E-mail Protection",
    "s/mime": "E-mail Protection",
    "ipsec end system": "IPSec End System",
    "ipsec tunnel": "IPSec Tunnel",
    "ipsec user": "IPSec User",
    "timestamping": "Time Stamping",
    "ocsp signing": "OCSP Signing",
    "microsoft sgc": "Microsoft Server Gated Crypto",
    "netscape sgc": "Netscape Server Gated Crypto",
}
"""Each usage as OpenSSL prints it."""

SUBJECT: Final = X509Subject(
    organizations=("Example, Inc.", "Second"),
    countries=("DE",),
    organizational_units=("Überall",),
    localities=("Köln",),
    provinces=("NRW",),
    street_addresses=("Weg 1",),
    postal_codes=("50667",),
    serial_number="HRB 1",
)
CONSTRAINTS: Final = NameConstraints(
    critical=True,
    permitted=NameConstraintItem(
        dns_domains=("example.com",),
        ip_ranges=("10.0.0.0/8", "fd00::/8"),
        email_addresses=("example.com",),
        uri_domains=("example.com",),
    ),
    excluded=NameConstraintItem(dns_domains=("secret.example.com",)),
)

SHAPES: Final[dict[str, tuple[dict[str, Any], tuple[str, ...]]]] = {
    "ECDSA P-384": (
        {"private_key": PrivateKeySpec(algorithm="ECDSA", size=384)},
        ("NIST CURVE: P-384",),
    ),
    "ECDSA P-521, PKCS#8": (
        {"private_key": PrivateKeySpec(algorithm="ECDSA", size=521, encoding="PKCS8")},
        ("NIST CURVE: P-521",),
    ),
    "RSA 3072, PKCS#8": (
        {"private_key": PrivateKeySpec(size=3072, encoding="PKCS8")},
        (r"Public-Key: \(3072 bit\)",),
    ),
    "Ed25519": ({"private_key": PrivateKeySpec(algorithm="Ed25519")}, ("Public Key Algorithm: ED25519",)),
    "a whole subject": (
        {"subject": SUBJECT, "common_name": "web"},
        (r"O=Example\\, Inc\.", "L=K.*ln", "serialNumber=HRB 1", "postalCode=50667", "street=Weg 1"),
    ),
    "a literal subject": (
        {"literal_subject": "CN=web,OU=B+O=A,DC=example"},
        (r"Subject: CN=web,(O=A\+OU=B|OU=B\+O=A),DC=example\n",),
    ),
    "an otherName": (
        {"other_names": (OtherName(oid="1.3.6.1.4.1.311.20.2.3", utf8_value="upn@example.local"),)},
        (r"othername: UPN:: ?upn@example\.local|othername: *(UPN|1\.3\.6\.1\.4\.1\.311\.20\.2\.3)",),
    ),
    "no usages in the request": (
        {"encode_usages_in_request": False, "usages": ("client auth",)},
        ("TLS Web Client Authentication",),
    ),
    "a CA with name constraints": (
        {
            "is_ca": True,
            "common_name": "Bound",
            "dns_names": (),
            "name_constraints": CONSTRAINTS,
            "usages": ("cert sign", "crl sign"),
        },
        (
            "Name Constraints: critical",
            r"Permitted:\s+DNS:example\.com",
            r"IP:10\.0\.0\.0/255\.0\.0\.0",
            r"email:example\.com",
            r"URI:example\.com",
            r"Excluded:\s+DNS:secret\.example\.com",
        ),
    ),
    "a very short life": ({"duration": "1h", "renew_before": "5m"}, ()),
    "a very long life": ({"duration": "2400h"}, ()),
}
"""What is asked for, and what OpenSSL's text has of it (patterns)."""


shared = pytest.mark.asyncio(loop_scope="module")
opened, suite = suite_fixtures(SUITES[::3])


@pytest.fixture
async def ca() -> AsyncIterator[Suite]:
    """A CA alone."""
    async with open_suite(SUITES[0]) as made:
        yield made


@pytest.mark.parametrize("shape", SHAPES)
@shared
async def test_a_certificate_of_this_shape_is_issued(shape: str, suite: Suite) -> None:
    spec, patterns = SHAPES[shape]
    await suite.issue(**spec)
    leaf = await validate(suite)
    text = await openssl.text_of(leaf.pem)
    for pattern in patterns:
        assert re.search(pattern, text, re.S), text
    data = (await suite.world.secret("web")).data
    of_certificate, of_key = await openssl.public_keys(data["tls.crt"], data["tls.key"])
    assert of_certificate == of_key
    assert len(await requests(suite)) == 1


async def requests(suite: Suite) -> list[str]:
    """The names of all requests: more than one would mean that it was issued again and again."""
    listed = (await suite.world.client.list(CERTIFICATE_REQUESTS, "default")).items
    return [request.metadata.name for request in listed]


def test_each_usage_has_a_text() -> None:
    assert set(TEXTS) == set(KEY_USAGES)


@pytest.mark.parametrize("usage", KEY_USAGES)
@shared
async def test_a_certificate_with_this_usage_alone_is_issued(usage: str, suite: Suite) -> None:
    # RFC 5280 §4.2.1.3: these two have a meaning only beside key agreement.
    pair = ("key agreement",) if usage in ("encipher only", "decipher only") else ()
    expected = {usage, *pair}
    await suite.issue(usages=(usage, *pair), is_ca=usage == "cert sign", common_name="web")
    assert await suite.world.is_ready("web"), (await suite.world.certificate("web")).status.conditions
    chain = read_chain((await suite.world.secret("web")).data["tls.crt"])
    text = await openssl.text_of(chain[0].pem)
    lines = re.findall(r"Key Usage: (?:critical)?\s+([^\n]+)", text)
    usages = {part.strip() for line in lines for part in line.split(",")}
    assert usages == {TEXTS[name] for name in expected}
    assert len(await requests(suite)) == 1


@shared
async def test_all_usages_together_are_issued(suite: Suite) -> None:
    await suite.issue(usages=KEY_USAGES, is_ca=True, common_name="web")
    assert await suite.world.is_ready("web")
    text = await openssl.text_of((await suite.world.secret("web")).data["tls.crt"])
    assert all(name in text for name in TEXTS.values())


@pytest.mark.parametrize(
    ("key", "algorithm", "text"),
    [
        ("RSA", "SHA256WithRSA", "sha256WithRSAEncryption"),
        ("RSA", "SHA384WithRSA", "sha384WithRSAEncryption"),
        ("RSA", "SHA512WithRSA", "sha512WithRSAEncryption"),
        ("ECDSA", "ECDSAWithSHA256", "ecdsa-with-SHA256"),
        ("ECDSA", "ECDSAWithSHA384", "ecdsa-with-SHA384"),
        ("ECDSA", "ECDSAWithSHA512", "ecdsa-with-SHA512"),
        ("Ed25519", "PureEd25519", "ED25519"),
    ],
)
@shared
async def test_the_signature_is_made_as_the_spec_says(
    key: str, algorithm: str, text: str, suite: Suite
) -> None:
    await suite.issue(private_key=PrivateKeySpec(algorithm=key), signature_algorithm=algorithm)
    leaf = await validate(suite)
    (name,) = await requests(suite)
    request = await suite.world.get(CERTIFICATE_REQUESTS, name)
    asked = await openssl.run("req", "-noout", "-text", "-verify", stdin=request.spec.request)
    assert f"Signature Algorithm: {text}" in asked
    # A CA signs with its own key; what was asked for concerns the request then, and a self-signed one.
    if not suite.is_ca:
        assert f"Signature Algorithm: {text}" in await openssl.text_of(leaf.pem)


async def test_an_rsa_key_of_8192_bits_is_issued(ca: Suite) -> None:
    await ca.issue(private_key=PrivateKeySpec(size=8192))
    leaf = await validate(ca)
    assert "Public-Key: (8192 bit)" in await openssl.text_of(leaf.pem)


async def test_the_addresses_of_an_issuer_are_in_its_certificates(ca: Suite) -> None:
    spec = CAIssuer(
        secret_name="ca",
        crl_distribution_points=("http://crl.example/a", "http://crl.example/b"),
        ocsp_servers=("http://ocsp.example",),
        issuing_certificate_urls=("http://ca.example/ca.crt",),
    )
    await ca.world.create(ISSUERS, make_issuer("told", IssuerSpec(ca=spec)))
    await ca.world.settle()
    await ca.world.create(CERTIFICATES, make_certificate("told", "told"))
    await ca.world.settle()
    text = await openssl.text_of((await ca.world.secret("told")).data["tls.crt"])
    for words in (
        "URI:http://crl.example/a",
        "URI:http://crl.example/b",
        "OCSP - URI:http://ocsp.example",
        "CA Issuers - URI:http://ca.example/ca.crt",
    ):
        assert words in text


async def test_a_self_signed_certificate_tells_where_its_revocation_list_is(ca: Suite) -> None:
    spec = SelfSignedIssuer(crl_distribution_points=("http://crl.example/self",))
    await ca.world.create(ISSUERS, make_issuer("self", IssuerSpec(self_signed=spec)))
    await ca.world.create(CERTIFICATES, make_certificate("self", "self", common_name="self"))
    await ca.world.settle()
    text = await openssl.text_of((await ca.world.secret("self")).data["tls.crt"])
    assert "URI:http://crl.example/self" in text


async def test_name_constraints_bind_what_is_below(ca: Suite) -> None:
    world = ca.world
    await ca.issue(is_ca=True, common_name="Bound", dns_names=(), name_constraints=CONSTRAINTS)
    await world.create(ISSUERS, make_ca_issuer("bound", "web"))
    await world.settle()
    for name in ("good.example.com", "very.secret.example.com", "good.example.org"):
        secret_name = name.replace(".", "-")
        made = make_certificate(
            secret_name, "bound", dns_names=(name,), issuer_ref=IssuerReference(name="bound")
        )
        await world.create(CERTIFICATES, made)
        await world.settle()
        if name == "good.example.com":
            data = (await world.secret(secret_name)).data
            await openssl.verify(data["tls.crt"], data["ca.crt"], world.clock.now())
        else:  # no client would accept it
            failed = conditions.find((await world.certificate(secret_name)).status.conditions, "Issuing")
            assert failed is not None
            assert re.search(r"(permits only|excludes) ", failed.message)


async def test_four_cas_in_a_row_are_one_chain(ca: Suite) -> None:
    world, above = ca.world, "signer"
    for level in ("one", "two", "three"):
        made = make_certificate(
            level, above, is_ca=True, common_name=level, dns_names=(), issuer_ref=IssuerReference(name=above)
        )
        await world.create(CERTIFICATES, made)
        await world.create(ISSUERS, make_ca_issuer(level, level))
        await world.settle()
        above = level
    await world.create(CERTIFICATES, make_certificate("leaf", "three"))
    await world.settle()
    data = (await world.secret("leaf")).data
    assert [c.common_name for c in read_chain(data["tls.crt"])] == ["", "three", "two", "one"]
    assert [c.common_name for c in read_chain(data["ca.crt"])] == ["Root"]
    await openssl.verify(data["tls.crt"], data["ca.crt"], world.clock.now())


async def test_a_leaf_never_outlives_its_ca(ca: Suite) -> None:
    await ca.issue(duration="87600h", renew_before="1h")
    certificate = await ca.world.certificate("web")
    root = read_chain((await ca.world.secret("web")).data["ca.crt"])[0]
    assert certificate.status.not_after == root.not_after
    assert conditions.is_true(certificate.status.conditions, "Ready")
    await ca.world.advance(timedelta(minutes=5))
    assert len(await requests(ca)) == 1
