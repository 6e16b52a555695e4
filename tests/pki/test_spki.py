"""Public keys as bytes: found in certificates and requests, told apart, and of the kind that they are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from certwright.pki import der, spki
from certwright.pki.certificates import known_certificate, read_certificate
from certwright.pki.csr import CsrPlan, build_csr, known_csr, read_csr
from certwright.pki.errors import BadCertificate, BadCsr, BadKey
from certwright.pki.keys import KeyPlan, PrivateKey, generate, plan_of, public_key_der
from certwright.pki.pem import blocks, join
from certwright.pki.signing import self_sign

NAMES = CsrPlan(common_name="web", dns_names=("web.example.com",))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def certificate_of(key: PrivateKey) -> bytes:
    csr = build_csr(NAMES, key)
    return self_sign(csr, key=key, duration=timedelta(days=1), is_ca=False, usages=(), now=NOW)


def with_another_point(pem: bytes) -> bytes:
    """The text with a public key that is not on its curve, in place of the one that is there."""
    (label, content), *_ = blocks(pem)
    encoded = spki.of_certificate(content) if label == b"CERTIFICATE" else spki.of_request(content)
    return join([(label, content.replace(encoded, encoded[:-64] + b"\x01" * 64))])


def test_the_key_is_found_where_it_stands(key: PrivateKey) -> None:
    certificate, request = read_certificate(certificate_of(key)), read_csr(build_csr(NAMES, key))
    assert certificate.spki == request.spki == public_key_der(key)
    assert certificate.public_key_der == request.public_key_der == public_key_der(key)


def test_the_kind_of_key_is_told(key: PrivateKey) -> None:
    assert spki.plan_of(public_key_der(key)) == plan_of(key)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rsa.generate_private_key(public_exponent=65537, key_size=1024),  # noqa: S505 - a kind that is refused
        lambda: ec.generate_private_key(ec.SECP256K1()),
        lambda: ec.generate_private_key(ec.BrainpoolP256R1()),
    ],
    ids=["RSA 1024", "secp256k1", "Brainpool"],
)
def test_a_kind_that_we_would_not_make_is_none(make: Callable[[], PrivateKey]) -> None:
    encoded = public_key_der(make())
    assert spki.plan_of(encoded) is None
    assert spki.canonical(encoded) == encoded


def test_a_compressed_point_is_the_same_key() -> None:
    key = generate(KeyPlan.of("ECDSA"))
    point = key.public_key()
    assert isinstance(point, ec.EllipticCurvePublicKey)
    short = point.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    algorithm = der.sequence(der.oid("1.2.840.10045.2.1"), der.oid("1.2.840.10045.3.1.7"))
    compressed = der.sequence(algorithm, der.element(der.BIT_STRING, b"\x00", short))
    assert spki.canonical(compressed) == public_key_der(key) != compressed


def test_an_rsa_key_without_the_null_of_its_algorithm_is_the_same_key(
    keys: Callable[[str], PrivateKey],
) -> None:
    encoded = public_key_der(keys("RSA 2048"))
    _, bits = der.read(der.read(encoded)[0].content)
    bare = der.sequence(der.sequence(der.oid("1.2.840.113549.1.1.1")), bits.encoded)
    assert spki.canonical(bare) == encoded != bare
    assert spki.plan_of(bare) == KeyPlan.of("RSA", 2048)


def test_a_key_that_is_none_is_refused_unless_it_is_known_to_be_one() -> None:
    key = generate(KeyPlan.of("ECDSA"))
    certificate, request = with_another_point(certificate_of(key)), with_another_point(build_csr(NAMES, key))
    with pytest.raises(BadCertificate, match="the certificate cannot be read"):
        read_certificate(certificate)
    with pytest.raises(BadCsr, match="error decoding certificate request"):
        read_csr(request)
    assert known_certificate(certificate).dns_names == ("web.example.com",)
    assert known_csr(blocks(request)[0][1]).dns_names == ("web.example.com",)


def test_keys_of_other_algorithms_are_keys_too() -> None:
    encoded = (
        dsa.generate_private_key(1024)  # noqa: S505 - the larger take their time
        .public_key()
        .public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    )
    spki.check(encoded)
    with pytest.raises(BadKey, match="another algorithm"):
        spki.supported_plan(encoded)


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x80", b"\x30\x05\x01", b"\x04\x00", bytes(40)])
def test_what_is_no_key_ends_in_our_own_error(data: bytes) -> None:
    for ask in (spki.canonical, spki.supported_plan, spki.check):
        with pytest.raises(BadKey):
            ask(data)
