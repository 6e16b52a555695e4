"""Chains: order, and what is served of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from certwright.pki import chain
from certwright.pki.certificates import CertificateFacts, read_answer, read_certificate, read_der, rewritten
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.errors import BadCertificate, BadChain
from certwright.pki.keys import KeyPlan, PrivateKey, encode_private_key, generate
from certwright.pki.signing import self_sign, sign

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)


@dataclass
class Party:
    certificate: CertificateFacts
    key: PrivateKey


def root(name: str, *, is_ca: bool = True, key: PrivateKey | None = None) -> Party:
    key = key or generate(KeyPlan.of("ECDSA"))
    csr = build_csr(CsrPlan(common_name=name, is_ca=is_ca), key)
    return Party(
        read_certificate(self_sign(csr, key=key, duration=YEAR, is_ca=is_ca, usages=(), now=NOW)), key
    )


def issued(name: str, by: Party, *, is_ca: bool = True, key: PrivateKey | None = None) -> Party:
    key = key or generate(KeyPlan.of("ECDSA"))
    csr = build_csr(CsrPlan(common_name=name, is_ca=is_ca), key)
    pem = sign(
        csr, ca_cert=by.certificate, ca_key=by.key, duration=YEAR, is_ca=is_ca, usages=(), now=NOW
    )  # fmt: skip
    return Party(read_certificate(pem), key)


TOP = root("Root")
UPPER = issued("Upper", TOP)
LOWER = issued("Lower", UPPER)
LEAF = issued("leaf", LOWER, is_ca=False)
WHOLE = [LEAF.certificate, LOWER.certificate, UPPER.certificate, TOP.certificate]


def names(certificates: list[CertificateFacts] | tuple[CertificateFacts, ...]) -> list[str]:
    return [certificate.common_name for certificate in certificates]


def test_certificates_are_put_in_order_whatever_order_they_came_in() -> None:
    for seed in range(10):
        mixed = [*WHOLE, WHOLE[1]]
        random.Random(seed).shuffle(mixed)
        assert chain.in_order(mixed) == tuple(WHOLE)


def test_the_root_is_the_ca_and_is_not_served(openssl: Callable[..., str]) -> None:
    certificates = chain.bundle(WHOLE)
    assert certificates.chain_pem == chain.pem_of(WHOLE[:3])
    assert certificates.ca_pem == TOP.certificate.pem
    at = ("-attime", str(int(NOW.timestamp())))
    arguments = ("verify", *at, "-x509_strict", "-CAfile", "ca", "-untrusted", "chain", "chain")
    assert "OK" in openssl(*arguments, ca=certificates.ca_pem, chain=certificates.chain_pem)


def test_without_a_root_the_highest_certificate_is_the_ca_and_is_served() -> None:
    certificates = chain.bundle(WHOLE[:3])
    assert certificates.chain_pem == chain.pem_of(WHOLE[:3])
    assert certificates.ca_pem == UPPER.certificate.pem


def test_a_root_alone_is_served_and_its_own_ca() -> None:
    assert chain.bundle([TOP.certificate]) == chain.Bundle(TOP.certificate.pem, TOP.certificate.pem)


def test_a_certificate_alone_has_no_known_ca() -> None:
    assert chain.bundle([LEAF.certificate]) == chain.Bundle(LEAF.certificate.pem, b"")
    # It is signed by itself, but may not sign certificates: cert-manager does not take it for a root either.
    lonely = root("lonely", is_ca=False).certificate
    assert chain.bundle([lonely]) == chain.Bundle(lonely.pem, b"")


@pytest.mark.parametrize(
    "certificates",
    [
        pytest.param([], id="none"),
        pytest.param([LEAF.certificate, UPPER.certificate], id="a gap"),
        pytest.param([LEAF.certificate, root("Root").certificate], id="a stranger"),
        pytest.param(
            [LEAF.certificate, issued("leaf 2", LOWER, is_ca=False).certificate, LOWER.certificate],
            id="two leaves",
        ),
    ],
)
def test_what_is_not_one_chain_is_refused(certificates: list[CertificateFacts]) -> None:
    with pytest.raises(BadChain):
        chain.in_order(certificates)


def test_cas_that_signed_each_other_are_refused_and_not_followed_for_ever() -> None:
    key_a, key_b = generate(KeyPlan.of("ECDSA")), generate(KeyPlan.of("ECDSA"))
    a, b = root("A", key=key_a), root("B", key=key_b)
    a_by_b, b_by_a = issued("A", b, key=key_a), issued("B", a, key=key_b)
    leaf = issued("leaf", a_by_b, is_ca=False)
    with pytest.raises(BadChain):
        chain.in_order([a_by_b.certificate, b_by_a.certificate])
    certificates = chain.in_order([leaf.certificate, b_by_a.certificate, a_by_b.certificate])
    assert names(certificates) == ["leaf", "A", "B"]


def test_a_name_alone_makes_no_issuer() -> None:
    assert not chain.is_issued_by(UPPER.certificate, root("Root").certificate)
    assert chain.is_issued_by(UPPER.certificate, TOP.certificate)


def test_a_chain_is_continued_with_what_is_known() -> None:
    known = [root("Other").certificate, TOP.certificate, UPPER.certificate]
    assert names(chain.extended([LOWER.certificate], known)) == ["Lower", "Upper", "Root"]
    assert names(chain.extended([LOWER.certificate], [TOP.certificate])) == ["Lower"]
    assert names(chain.extended([TOP.certificate], known)) == ["Root"]


def test_a_chain_without_end_is_refused() -> None:
    with pytest.raises(BadChain, match="too long"):
        chain.in_order([root(f"Root {n}").certificate for n in range(51)])


SERVED = chain.pem_of(WHOLE[:2])


@pytest.mark.parametrize(
    "answer",
    [
        encode_private_key(LEAF.key) + SERVED,
        SERVED + encode_private_key(LEAF.key),
        SERVED + SERVED.replace(b"CERTIFICATE", b"X509 CERTIFICATE"),
        SERVED + b"-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n",
        SERVED[:-300],
        SERVED.replace(b"-----END CERTIFICATE-----\n", b"", 1),
        SERVED + b"-----BEGIN",
        b"",
    ],
    ids=[
        "a private key first",
        "a private key last",
        "an old label",
        "a revocation list",
        "cut",
        "an end is missing",
        "a begin only",
        "nothing",
    ],
)
def test_an_answer_with_anything_but_certificates_is_refused(answer: bytes) -> None:
    with pytest.raises(BadCertificate):
        read_answer(answer)
    assert rewritten(answer) == answer


@pytest.mark.parametrize(
    "answer",
    [
        SERVED.replace(b"\n", b"\r\n"),
        b"subject=\x1b[2J\n" + SERVED.replace(b"-----BEGIN", b"text\n-----BEGIN"),
        SERVED.rstrip(),
        SERVED + SERVED,
    ],
    ids=["CRLF", "text between", "no last line feed", "each twice"],
)
def test_what_is_stored_of_an_answer_is_made_from_its_certificates(answer: bytes) -> None:
    assert rewritten(answer) == SERVED
    assert read_answer(answer) == tuple(WHOLE[:2])


def alike(number: int) -> list[CertificateFacts]:
    """CA certificates of one name without key identifiers, none signed by another: the issuer of each could
    be any of them."""
    key = generate(KeyPlan.of("ECDSA"))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "CA")])
    made = []
    for serial in range(1, number + 1):
        builder = x509.CertificateBuilder(name, name, key.public_key(), serial, NOW, NOW + YEAR)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        stranger = ec.generate_private_key(ec.SECP256R1())
        made.append(read_der(builder.sign(stranger, hashes.SHA256()).public_bytes(Encoding.DER)))
    return made


def test_certificates_of_one_name_take_no_more_verifications_than_twice_their_number() -> None:
    certificates = alike(50)
    misses = chain._verdict.cache_info().misses
    with pytest.raises(BadChain):
        chain.in_order(certificates)
    assert chain._verdict.cache_info().misses - misses <= 2 * len(certificates)
    chain.extended([LEAF.certificate, *certificates[:1]], certificates[1:])
    chain.end_of(certificates[0].pem, chain.pem_of(certificates[1:]))
    misses = chain._verdict.cache_info().misses
    with pytest.raises(BadChain):
        chain.in_order(certificates)
    assert chain._verdict.cache_info().misses == misses, "a refused chain is verified again"


def test_the_key_identifier_chooses_among_cas_of_one_name() -> None:
    generations = [root("Root") for _ in range(20)]
    for current in generations:
        leaf = issued("leaf", current, is_ca=False).certificate
        found = chain.extended([leaf], [party.certificate for party in generations])
        assert found == (leaf, current.certificate)
