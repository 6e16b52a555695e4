"""Keys, requests and certificates of ML-DSA."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from certwright.pki import chain, der, jks, keystores, mldsa, spki
from certwright.pki import keys as k
from certwright.pki.certificates import read_certificate
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from certwright.pki.errors import BadCsr, BadKey, BadUsage
from certwright.pki.keys import KeyAlgorithm, KeyPlan, PrivateKey
from certwright.pki.signing import self_sign, sign

MakeKey = Callable[[str], PrivateKey]
SIZES = sorted(mldsa.PARAMETER_SETS)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
WEB = CsrPlan(dns_names=("web.example.com",))
ROOT = CsrPlan(common_name="Root", is_ca=True)
EXPANDED_SIZES = {44: 2560, 65: 4032, 87: 4896}
"""FIPS 204, table 2."""


def pem(size: int, private_key: bytes) -> bytes:
    """PKCS#8 around that content of `privateKey`."""
    algorithm = der.sequence(der.oid(mldsa.PARAMETER_SETS[size].oid))
    content = b64encode(der.sequence(der.integer(0), algorithm, der.octets(private_key))).decode()
    lines = [content[at : at + 64] for at in range(0, len(content), 64)]
    return "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""]).encode()


def expanded_of(size: int, seed: bytes) -> bytes:
    """The expanded key, with zeros instead of its vectors."""
    chosen = mldsa.PARAMETER_SETS[size]
    stream = hashlib.shake_256(seed + bytes((chosen.rows, chosen.columns))).digest(128)
    public = chosen.private.from_seed_bytes(seed).public_key().public_bytes_raw()
    begin = stream[:32] + stream[96:] + hashlib.shake_256(public).digest(64)
    return begin.ljust(EXPANDED_SIZES[size], b"\0")


@pytest.mark.parametrize("size", SIZES)
def test_a_key_is_written_in_the_seed_form_and_read_back(size: int, keys: MakeKey) -> None:
    key, plan = keys(f"ML-DSA {size}"), KeyPlan(KeyAlgorithm.ML_DSA, size)
    for encoding in ("PKCS1", "PKCS8"):
        written = k.encode_private_key(key, encoding)
        assert written == pem(size, der.element(der.CONTEXT_0_PRIMITIVE, key.private_bytes_raw()))  # type: ignore[union-attr] # it is an ML-DSA key
        assert k.public_key_of(k.load_private_key(written)) == k.public_key_of(key)
    assert k.plan_of(key) == plan == spki.plan_of(k.public_key_der(key))
    assert str(plan) == f"ML-DSA-{size}"
    assert spki.canonical(k.public_key_der(key)) == k.public_key_der(key)
    assert k.public_key_of(k.load_public_key(k.public_key_der(key))) == k.public_key_of(key)


@pytest.mark.parametrize("size", SIZES)
def test_a_key_with_seed_and_expanded_form_is_read(size: int) -> None:
    # This is what OpenSSL writes by default.
    seed = bytes(range(32))
    written = pem(size, der.sequence(der.octets(seed), der.octets(expanded_of(size, seed))))
    for text in (written, written.replace(b"\n", b"\r\n"), b"text before it\n" + written):
        key = k.load_private_key(text)
        assert k.public_key_of(key) == k.public_key_of(
            mldsa.PARAMETER_SETS[size].private.from_seed_bytes(seed)
        )


def test_a_seed_that_does_not_match_the_expanded_form_is_refused() -> None:
    inner = der.sequence(der.octets(bytes(32)), der.octets(expanded_of(65, bytes(range(32)))))
    with pytest.raises(BadKey, match="do not match"):
        k.load_private_key(pem(65, inner))


def test_a_key_without_its_seed_is_refused_with_the_fix() -> None:
    with pytest.raises(BadKey, match=r"lacks its seed \(RFC 9881 §6\).*replace it"):
        k.load_private_key(pem(44, der.octets(expanded_of(44, bytes(32)))))


@pytest.mark.parametrize("inner", [b"", b"\x30", b"\x80\x01\x00", b"\x30\x00", bytes(32)])
def test_any_other_content_is_refused(inner: bytes) -> None:
    with pytest.raises(BadKey):
        k.load_private_key(pem(44, inner))


@given(at=st.integers(0, 300), value=st.integers(0, 255))
def test_damage_is_refused_or_harmless(at: int, value: int) -> None:
    seed = bytes(range(32))
    content = bytearray(der.sequence(der.octets(seed), der.octets(expanded_of(44, seed))))
    content[at] = value
    try:
        key = k.load_private_key(pem(44, bytes(content)))
    except BadKey:
        return
    assert k.public_key_of(key) == k.public_key_of(mldsa.PARAMETER_SETS[44].private.from_seed_bytes(seed))


def test_a_size_that_does_not_exist_is_refused() -> None:
    assert KeyPlan.of("ML-DSA") == KeyPlan.of("ML-DSA", 65)
    with pytest.raises(BadKey, match="ML-DSA-66 is not a parameter set; write 44, 65 or 87"):
        KeyPlan.of("ML-DSA", 66)


def test_the_signature_algorithm_names_the_parameter_set(keys: MakeKey) -> None:
    assert k.request_hash(keys("ML-DSA 65"), "PureMLDSA65") is None
    with pytest.raises(BadKey, match="does not go with"):
        k.request_hash(keys("ML-DSA 65"), "PureMLDSA87")


@pytest.mark.parametrize("above", ["ML-DSA 87", "RSA 2048", "ECDSA 256", "Ed25519"])
@pytest.mark.parametrize("below", ["ML-DSA 44", "ECDSA 256"])
def test_chains_of_mixed_algorithms_are_signed_and_recognized(above: str, below: str, keys: MakeKey) -> None:
    ca_key, key = keys(above), keys(below)
    ca = self_sign(build_csr(ROOT, ca_key), key=ca_key, duration=30 * DAY, is_ca=True, usages=(), now=NOW)
    root = read_certificate(ca)
    leaf = read_certificate(
        sign(
            build_csr(WEB, key),
            ca_cert=root,
            ca_key=ca_key,
            duration=DAY,
            is_ca=False,
            usages=(),
            now=NOW,
        )
    )
    assert leaf.public_key_der == k.public_key_der(key)
    assert chain.in_order((root, leaf)) == (leaf, root)
    assert chain.is_root(root)


def test_the_default_usages_are_those_of_a_key_that_only_signs(keys: MakeKey) -> None:
    key = keys("ML-DSA 65")
    assert read_csr(build_csr(WEB, key)).usages == ("digital signature",)
    ca = self_sign(build_csr(ROOT, key), key=key, duration=DAY, is_ca=True, usages=(), now=NOW)
    assert read_certificate(ca).usages == ("digital signature", "cert sign")


def test_a_usage_that_needs_encryption_is_refused(keys: MakeKey) -> None:
    key = keys("ML-DSA 65")
    with pytest.raises(BadUsage, match='only signs, but the usages include "key encipherment"'):
        build_csr(CsrPlan(dns_names=("a.example",), usages=("key encipherment",)), key)
    plain = build_csr(CsrPlan(dns_names=("a.example",), encode_usages=False), key)
    with pytest.raises(BadUsage, match="key agreement"):
        self_sign(plain, key=key, duration=DAY, is_ca=False, usages=("key agreement",), now=NOW)


def test_a_request_whose_signature_was_changed_is_refused(keys: MakeKey) -> None:
    key = keys("ML-DSA 44")
    content = bytearray(read_csr(build_csr(WEB, key)).der)
    content[-1] ^= 1
    damaged = read_csr(
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + b64encode(content)
        + b"\n-----END CERTIFICATE REQUEST-----\n"
    )
    assert not damaged.signature_valid
    with pytest.raises(BadCsr, match="signature"):
        self_sign(
            b"-----BEGIN CERTIFICATE REQUEST-----\n"
            + b64encode(content)
            + b"\n-----END CERTIFICATE REQUEST-----\n",
            key=key, duration=DAY, is_ca=False, usages=(), now=NOW,
        )  # fmt: skip


def test_a_jks_store_has_the_key_and_a_pkcs12_file_is_refused(keys: MakeKey) -> None:
    key = keys("ML-DSA 44")
    leaf = self_sign(build_csr(ROOT, key), key=key, duration=DAY, is_ca=True, usages=(), now=NOW)
    key_pem = k.encode_private_key(key)
    made, _ = keystores.jks_files(keystores.Contents(key_pem, leaf, leaf, "secret"), alias="", now=NOW)
    (entry,) = jks.open_store(made, password="secret").keys
    assert entry.key_pkcs8 == key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(BadKey, match="cannot write an ML-DSA key into a PKCS#12 file"):
        keystores.pkcs12_files(keystores.Contents(key_pem, leaf, leaf, "secret"), profile="")
