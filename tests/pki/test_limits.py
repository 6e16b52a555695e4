"""Limits of key material: what would take long is refused by its bytes, before a parser sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from certwright.pki import chain, der, limits, spki
from certwright.pki import keys as k
from certwright.pki.certificates import read_chain, read_der
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from certwright.pki.errors import BadCertificate, BadCsr, BadKey, PkiError
from certwright.pki.keys import KeyPlan, PrivateKey
from certwright.pki.pem import blocks, join
from certwright.pki.signing import self_sign

RSA, RSA_PSS = "1.2.840.113549.1.1.1", "1.2.840.113549.1.1.10"
F4 = 65537


def rsa_spki(bits: int, exponent: int = F4, algorithm: str = RSA) -> bytes:
    """A public key with an odd modulus of that size, whose factors are unknown."""
    key = der.sequence(der.integer((1 << bits - 1) + 1), der.integer(exponent))
    return der.sequence(der.sequence(der.oid(algorithm), der.null()), der.element(der.BIT_STRING, b"\0", key))


def rsa_pem(bits: int, exponent: int = F4, algorithm: str = RSA) -> bytes:
    """A PKCS#8 key of that size, whose numbers do not fit each other."""
    half = 1 << bits // 2
    numbers = [0, 1 << bits - 1, exponent, 1 << bits - 1, *[half] * 5]
    key = der.octets(der.sequence(*map(der.integer, numbers)))
    pkcs8 = der.sequence(der.integer(0), der.sequence(der.oid(algorithm), der.null()), key)
    return join([(b"PRIVATE KEY", pkcs8)])


@pytest.mark.parametrize(
    ("encoded", "sentence"),
    [
        pytest.param(rsa_spki(16385), "16384", id="an RSA key of 16385 bits"),
        pytest.param(rsa_spki(1_000_000), "16384", id="an RSA key of a million bits"),
        pytest.param(rsa_spki(2048, 2**31 + 1), "exponent", id="an exponent of 32 bits"),
        pytest.param(rsa_spki(2048, 2**2046 + 1), "exponent", id="an exponent as long as the modulus"),
        pytest.param(rsa_spki(8193, F4 + 2), "above 65537", id="a large key with a large exponent"),
        pytest.param(rsa_spki(2048, 65536), "exponent", id="an even exponent"),
        pytest.param(rsa_spki(2048, 1), "exponent", id="an exponent of 1"),
        pytest.param(rsa_spki(32768, algorithm=RSA_PSS), "16384|PSS", id="a large RSASSA-PSS key"),
    ],
)
def test_a_public_key_that_would_take_long_is_refused(encoded: bytes, sentence: str) -> None:
    for use in (limits.check_public_key, spki.check, spki.supported_plan, k.load_public_key):
        with pytest.raises(BadKey, match=sentence):
            use(encoded)


def test_a_key_of_diffie_hellman_is_refused_because_nothing_limits_its_size() -> None:
    parameters = der.sequence(der.integer(2**100_000 + 1), der.integer(2))
    algorithm = der.sequence(der.oid("1.2.840.113549.1.3.1"), parameters)
    encoded = der.sequence(algorithm, der.element(der.BIT_STRING, b"\0", der.integer(5)))
    with pytest.raises(BadKey, match="algorithm"):
        spki.check(encoded)


def test_an_elliptic_curve_of_the_senders_own_is_refused() -> None:
    field = der.sequence(der.oid("1.2.840.10045.1.1"), der.integer(2**4096 + 1))
    algorithm = der.sequence(der.oid("1.2.840.10045.2.1"), der.sequence(der.integer(1), field))
    with pytest.raises(BadKey, match="named curve"):
        limits.check_public_key(der.sequence(algorithm, der.element(der.BIT_STRING, b"\0\4", bytes(64))))


@pytest.mark.parametrize("bits", [1024, 2048, 8192, 16384])
def test_a_certificate_of_another_ca_may_have_a_smaller_or_larger_key_than_ours(bits: int) -> None:
    limits.check_public_key(rsa_spki(bits))


@pytest.mark.parametrize(
    ("pem", "sentence"),
    [
        pytest.param(rsa_pem(32768), "8192", id="an RSA key of 32768 bits"),
        pytest.param(rsa_pem(8208), "8192", id="an RSA key of 8208 bits"),
        pytest.param(rsa_pem(2048, 2**2046 + 1), "exponent", id="an exponent as long as the modulus"),
        pytest.param(rsa_pem(2048, algorithm=RSA_PSS), "RSASSA-PSS", id="an RSASSA-PSS key"),
        pytest.param(join([(b"PRIVATE KEY", bytes(40_000))]), "16384 bytes", id="a block of 40 kB"),
        pytest.param(b"-----BEGIN PRIVATE KEY-----\n" * 18_000, "expected is PEM", id="18,000 beginnings"),
        pytest.param(b"-----BEGIN PRIVATE KEY-----" * 18_000, "expected is PEM", id="no line in 500 kB"),
        pytest.param(b"-----END PRIVATE KEY-----\n" * 18_000, "expected is PEM", id="18,000 ends"),
        pytest.param(b"-" * 500_000, "expected is PEM", id="500,000 dashes"),
    ],
)
def test_a_private_key_that_would_take_long_is_refused(pem: bytes, sentence: str) -> None:
    with pytest.raises(BadKey, match=sentence):
        k.load_private_key(pem)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ec.generate_private_key(ec.SECP256K1()), "curve secp256k1.*P-256"),
        (lambda: ec.generate_private_key(ec.BrainpoolP256R1()), "curve brainpoolP256r1"),
        (lambda: rsa.generate_private_key(public_exponent=F4, key_size=1024), "1024 bits.*2048 to 8192"),  # noqa: S505 - refused
    ],
    ids=["secp256k1", "Brainpool", "RSA 1024"],
)
def test_a_private_key_whose_signatures_some_clients_refuse_is_refused(
    make: Callable[[], PrivateKey], sentence: str
) -> None:
    with pytest.raises(BadKey, match=sentence):
        k.load_private_key(k.encode_private_key(make()))
    with pytest.raises(BadKey, match=sentence):
        spki.supported_plan(k.public_key_der(make()))


def test_a_key_that_is_restricted_to_pss_is_none_that_may_be_certified(
    keys: Callable[[str], PrivateKey],
) -> None:
    restricted = k.public_key_der(keys("RSA 2048")).replace(der.oid(RSA), der.oid(RSA_PSS))
    with pytest.raises(BadKey, match="RSASSA-PSS"):
        spki.supported_plan(restricted)


def test_certificates_and_requests_with_such_a_key_are_refused(keys: Callable[[str], PrivateKey]) -> None:
    key = keys("RSA 2048")
    csr = build_csr(CsrPlan(common_name="web"), key)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = self_sign(csr, key=key, duration=timedelta(days=1), is_ca=False, usages=(), now=now)
    with pytest.raises(BadCsr, match="exponent"):
        read_csr(_with_slow_key(csr))
    with pytest.raises(BadCertificate, match="exponent"):
        read_chain(_with_slow_key(certificate))
    with pytest.raises(BadCertificate, match="exponent"):
        read_der(blocks(_with_slow_key(certificate))[0][1])


def _with_slow_key(pem: bytes) -> bytes:
    """The text with an exponent of 32 bits; the lengths around it and the signature no longer fit."""
    [(label, content)] = blocks(pem)
    return join([(label, content.replace(der.integer(F4), der.element(der.INTEGER, b"\x80\0\1")))])


def test_a_text_of_a_megabyte_is_refused_whatever_is_in_it(keys: Callable[[str], PrivateKey]) -> None:
    """Caches have texts as their keys."""
    key, junk = keys("ECDSA 256"), b"x" * 1_000_000
    csr = build_csr(CsrPlan(common_name="web", is_ca=True), key)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    certificate = self_sign(csr, key=key, duration=timedelta(days=1), is_ca=True, usages=(), now=now)
    for read, text in (
        (read_chain, certificate),
        (read_csr, csr),
        (k.load_private_key, k.encode_private_key(key)),
    ):
        read(b"a comment\n" + text)
        with pytest.raises(PkiError, match="has more than"):
            read(junk + text)
    assert chain.authority(junk + certificate, b"") == chain.authority(b"", junk) == ()
    assert chain.end_of(certificate, junk + certificate) == now + timedelta(days=1)


def test_a_plan_exists_for_each_size_in_the_table() -> None:
    for size, curve in limits.CURVES.items():
        key = k.generate(KeyPlan.of("ECDSA", size))
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, curve.kind)
