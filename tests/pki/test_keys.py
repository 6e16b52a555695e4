"""Private keys: made, written, read, compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519

from certwright.pki import keys as k
from certwright.pki.errors import BadKey
from certwright.pki.keys import KeyAlgorithm, KeyPlan, PrivateKey

MakeKey = Callable[[str], PrivateKey]
HEADERS = {
    ("RSA", "PKCS1"): b"-----BEGIN RSA PRIVATE KEY-----",
    ("ECDSA", "PKCS1"): b"-----BEGIN EC PRIVATE KEY-----",
    ("Ed25519", "PKCS1"): b"-----BEGIN PRIVATE KEY-----",
}


@pytest.mark.parametrize("encoding", ["PKCS1", "PKCS8"])
def test_every_kind_of_key_is_written_and_read_back(
    key: PrivateKey, encoding: str, openssl: Callable[..., str]
) -> None:
    pem = k.encode_private_key(key, encoding)
    plan = k.plan_of(key)
    assert plan is not None
    assert pem.startswith(HEADERS.get((plan.algorithm, encoding), b"-----BEGIN PRIVATE KEY-----"))
    read = k.load_private_key(pem)
    assert k.plan_of(read) == plan
    assert k.public_key_der(read) == k.public_key_der(key.public_key())
    # openssl cannot check the consistency of an Ed25519 key, but must read it.
    check = () if plan.algorithm is KeyAlgorithm.ED25519 else ("-check",)
    openssl("pkey", "-in", "pem", "-noout", *check, pem=pem)


def test_keys_that_openssl_made_are_read(openssl: Callable[..., str]) -> None:
    with_parameters = openssl("ecparam", "-name", "prime256v1", "-genkey").encode()
    assert with_parameters.startswith(b"-----BEGIN EC PARAMETERS-----")
    assert k.plan_of(k.load_private_key(with_parameters)) == KeyPlan.of("ECDSA")
    ed25519 = openssl("genpkey", "-algorithm", "ed25519").encode()
    assert k.plan_of(k.load_private_key(ed25519)) == KeyPlan.of("Ed25519")


def test_the_default_plan_is_rsa_2048_and_ecdsa_is_256() -> None:
    assert KeyPlan.of() == KeyPlan(KeyAlgorithm.RSA, 2048)
    assert KeyPlan.of("ECDSA") == KeyPlan(KeyAlgorithm.ECDSA, 256)
    assert KeyPlan.of("Ed25519", 4096) == KeyPlan(KeyAlgorithm.ED25519, 0)
    assert [str(KeyPlan.of(a)) for a in ("RSA", "ECDSA", "Ed25519")] == ["RSA 2048", "ECDSA 256", "Ed25519"]


@pytest.mark.parametrize(
    ("algorithm", "size", "sentence"),
    [
        ("RSA", 1024, "2048 to 8192"),
        ("RSA", 16384, "2048 to 8192"),
        ("RSA", -1, "2048 to 8192"),
        ("ECDSA", 255, "256, 384 or 521"),
        ("DSA", 0, "RSA, ECDSA, Ed25519"),
    ],
)
def test_a_kind_of_key_that_we_do_not_make_is_refused(algorithm: str, size: int, sentence: str) -> None:
    with pytest.raises(BadKey, match=sentence):
        KeyPlan.of(algorithm, size)


def test_a_curve_of_the_same_size_is_another_kind_of_key() -> None:
    koblitz = ec.generate_private_key(ec.SECP256K1())
    assert k.plan_of(koblitz) is None


def pkcs8(key: PrivateKey | x25519.X25519PrivateKey, password: bytes = b"") -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def test_an_encrypted_key_is_refused_as_such(keys: MakeKey) -> None:
    with pytest.raises(BadKey, match="encrypted"):
        k.load_private_key(pkcs8(keys("ECDSA 256"), b"secret"))


def test_a_key_of_an_algorithm_that_cannot_sign_is_refused() -> None:
    with pytest.raises(BadKey, match="another algorithm"):
        k.load_private_key(pkcs8(x25519.X25519PrivateKey.generate()))


def test_an_rsa_key_whose_numbers_do_not_fit_is_refused(keys: MakeKey) -> None:
    key = keys("RSA 2048")
    assert isinstance(key, rsa.RSAPrivateKey)
    n = key.private_numbers()
    damaged = rsa.RSAPrivateNumbers(
        p=n.p, q=n.q, d=n.d + 2, dmp1=n.dmp1, dmq1=n.dmq1, iqmp=n.iqmp, public_numbers=n.public_numbers
    ).private_key(unsafe_skip_rsa_key_validation=True)
    with pytest.raises(BadKey, match="do not fit"):
        k.load_private_key(pkcs8(damaged))


def test_an_error_about_a_key_shows_nothing_of_it(keys: MakeKey) -> None:
    pem = k.encode_private_key(keys("ECDSA 256"))
    middle = pem.splitlines()[2]
    with pytest.raises(BadKey) as caught:
        k.load_private_key(pem.replace(middle, middle[:-8]))
    assert middle[:12].decode() not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("plan", "ca", "request_"),
    [
        ("RSA 2048", "sha256", "sha256"),
        ("RSA 3072", "sha256", "sha384"),
        ("ECDSA 256", "sha256", "sha256"),
        ("ECDSA 384", "sha384", "sha384"),
        ("ECDSA 521", "sha512", "sha512"),
        ("Ed25519", None, None),
    ],
)
def test_the_hash_is_as_strong_as_the_key(
    plan: str, ca: str | None, request_: str | None, keys: MakeKey
) -> None:
    chosen, asked = k.signature_hash(keys(plan)), k.request_hash(keys(plan))
    assert (chosen.name if chosen else None) == ca
    assert (asked.name if asked else None) == request_


def test_a_signature_algorithm_can_be_named_and_must_go_with_the_key(keys: MakeKey) -> None:
    named = k.request_hash(keys("RSA 2048"), "SHA512WithRSA")
    assert named is not None
    assert named.name == "sha512"
    assert k.request_hash(keys("Ed25519"), "PureEd25519") is None
    with pytest.raises(BadKey, match="does not go with"):
        k.request_hash(keys("ECDSA 256"), "SHA256WithRSA")
    with pytest.raises(BadKey, match="not a signature algorithm"):
        k.request_hash(keys("ECDSA 256"), "MD5WithRSA")


def test_another_encoding_is_refused(keys: MakeKey) -> None:
    with pytest.raises(BadKey, match="PKCS1 or PKCS8"):
        k.encode_private_key(keys("ECDSA 256"), "DER")
