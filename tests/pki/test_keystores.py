"""The four kinds of key store, read back by the programs that people read them with."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12 as reader

from certwright.pki import der, keys, keystores, pkcs12
from certwright.pki.certificates import read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.errors import BadKey
from certwright.pki.keys import KeyAlgorithm, KeyPlan
from certwright.pki.pkcs12 import Profile
from certwright.pki.signing import self_sign, sign
from support.real import require

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PASSWORD = "pässwörd 1"
ALGORITHMS = [KeyAlgorithm.RSA, KeyAlgorithm.ECDSA, KeyAlgorithm.ED25519]


@cache
def material(algorithm: KeyAlgorithm) -> tuple[bytes, bytes, bytes]:
    """Key, chain and CA as PEM."""
    ca_key, key = keys.generate(KeyPlan(KeyAlgorithm.ECDSA)), keys.generate(KeyPlan(algorithm))
    ca_csr = build_csr(CsrPlan(common_name="Test CA", is_ca=True), ca_key)
    life = timedelta(days=3650)
    ca = self_sign(ca_csr, key=ca_key, duration=life, is_ca=True, usages=(), now=NOW)
    leaf = sign(
        build_csr(CsrPlan(dns_names=("web.example.com",)), key),
        ca_cert=read_certificate(ca),
        ca_key=ca_key,
        duration=life,
        is_ca=False,
        usages=(),
        now=NOW,
    )
    return keys.encode_private_key(key, "PKCS8"), leaf, ca


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("profile", [p for p in Profile if p is not Profile.MODERN_2026])
def test_openssl_reads_every_pkcs12_profile(
    tmp_path: Path, profile: Profile, algorithm: KeyAlgorithm
) -> None:
    openssl = require("openssl")
    key, chain, ca = material(algorithm)
    made, trust = keystores.pkcs12_files(keystores.Contents(key, chain, ca, PASSWORD), profile=profile)
    assert trust is not None
    (tmp_path / "k.p12").write_bytes(made)
    printed = run(
        openssl, "pkcs12", "-legacy", "-in", str(tmp_path / "k.p12"), "-passin", f"pass:{PASSWORD}", "-nodes"
    )
    assert printed.count("BEGIN CERTIFICATE") == 2
    read = printed[printed.index("-----BEGIN PRIVATE KEY") :].encode()
    again = serialization.load_pem_private_key(read[: read.index(b"-----END") + 25], None)
    assert keys.public_key_der(keys.load_private_key(key)) == again.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize(
    ("profile", "certificates", "key"),
    [
        (Profile.LEGACY_RC2, "pbeWithSHA1And40BitRC2-CBC", "pbeWithSHA1And3-KeyTripleDES-CBC"),
        (Profile.LEGACY_DES, "pbeWithSHA1And3-KeyTripleDES-CBC", "pbeWithSHA1And3-KeyTripleDES-CBC"),
        (Profile.MODERN_2023, "AES-256-CBC", "AES-256-CBC"),
    ],
)
def test_each_profile_uses_its_algorithms(
    tmp_path: Path, profile: Profile, certificates: str, key: str
) -> None:
    openssl = require("openssl")
    pem = material(KeyAlgorithm.ECDSA)
    made, _ = keystores.pkcs12_files(keystores.Contents(pem[0], pem[1], pem[2], PASSWORD), profile=profile)
    (tmp_path / "k.p12").write_bytes(made)
    shown = run(
        openssl,
        "pkcs12",
        "-legacy",
        "-in",
        str(tmp_path / "k.p12"),
        "-passin",
        f"pass:{PASSWORD}",
        "-info",
        "-noout",
    )
    encrypted = next(line for line in shown.splitlines() if line.startswith("PKCS7 Encrypted data"))
    shrouded = next(line for line in shown.splitlines() if line.startswith("Shrouded Keybag"))
    assert certificates in encrypted
    assert key in shrouded
    assert f"Iteration {pkcs12.ROUNDS}" in encrypted


def test_the_newest_profile_is_sealed_with_pbmac1(tmp_path: Path) -> None:
    openssl = require("openssl")
    key, chain, ca = material(KeyAlgorithm.ECDSA)
    made, _ = keystores.pkcs12_files(keystores.Contents(key, chain, ca, PASSWORD), profile="Modern2026")
    (tmp_path / "k.p12").write_bytes(made)
    # Only openssl 3.4 and later know PBMAC1: the content is read without the check here, and the check is
    # made by hand below.
    words = ("pkcs12", "-nomacver", "-in", str(tmp_path / "k.p12"), "-passin", f"pass:{PASSWORD}", "-nodes")
    assert run(openssl, *words).count("BEGIN CERTIFICATE") == 2
    mac = der.read(der.read(made)[0].content)[2]
    algorithm, digest = der.read(der.read(mac.content)[0].content)
    assert der.read(algorithm.content)[0].encoded == der.oid("1.2.840.113549.1.5.14")
    derivation = der.read(der.read(algorithm.content)[1].content)[0]
    salt = der.read(der.read(derivation.content)[1].content)[0].content

    secret = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, pkcs12.ROUNDS, 32)
    assert hmac.digest(secret, pkcs12._safe_of(made), "sha256") == digest.content


@pytest.mark.parametrize(
    ("algorithm", "alias"),
    [(KeyAlgorithm.RSA, "Web"), (KeyAlgorithm.ECDSA, "Web"), (KeyAlgorithm.ECDSA, "CA")],
)
def test_keytool_reads_the_java_key_store_and_gives_the_key_back(
    tmp_path: Path, algorithm: KeyAlgorithm, alias: str
) -> None:
    keytool = require("keytool")
    key, chain, ca = material(algorithm)
    contents = keystores.Contents(key, chain, ca, "changeit")
    made, trust = keystores.jks_files(contents, alias=alias, now=NOW)
    assert trust is not None
    (tmp_path / "k.jks").write_bytes(made)
    (tmp_path / "t.jks").write_bytes(trust)
    listed = run(keytool, "-list", "-keystore", str(tmp_path / "k.jks"), "-storepass", "changeit")
    assert f"{alias.lower()}, " in listed
    assert "PrivateKeyEntry" in listed
    assert ("ca-1, " if alias == "CA" else "ca, ") in listed
    assert keystores.jks_fits(made, trust, contents, alias=alias)
    trusted = run(keytool, "-list", "-keystore", str(tmp_path / "t.jks"), "-storepass", "changeit")
    assert "trustedCertEntry" in trusted
    store = ("-srckeystore", str(tmp_path / "k.jks"), "-srcstorepass", "changeit")
    source = (*store, "-srcalias", alias.lower())
    target = (
        "-destkeystore",
        str(tmp_path / "k.p12"),
        "-deststoretype",
        "PKCS12",
        "-deststorepass",
        "changeit",
    )
    run(keytool, "-importkeystore", "-noprompt", *source, *target)
    private_key, _, _ = reader.load_key_and_certificates((tmp_path / "k.p12").read_bytes(), b"changeit")
    assert private_key is not None
    assert (
        private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        == key
    )


@pytest.mark.parametrize("profile", ["", "LegacyDES", "Modern2023"])
def test_keytool_takes_the_certificates_of_a_pkcs12_trust_store_for_trusted(
    tmp_path: Path, profile: str
) -> None:
    keytool = require("keytool")
    key, chain, ca = material(KeyAlgorithm.ECDSA)
    _, trust = keystores.pkcs12_files(keystores.Contents(key, chain, ca, "changeit"), profile=profile)
    assert trust is not None
    (tmp_path / "t.p12").write_bytes(trust)
    listed = run(keytool, "-list", "-keystore", str(tmp_path / "t.p12"), "-storepass", "changeit")
    assert "ca, " in listed
    assert "trustedCertEntry" in listed


def test_all_certificates_of_the_ca_are_in_the_trust_stores(tmp_path: Path) -> None:
    keytool = require("keytool")
    key, chain, ca = material(KeyAlgorithm.ECDSA)
    other = material(KeyAlgorithm.ED25519)[2]
    contents = keystores.Contents(key, chain, ca + other, "changeit")
    _, pkcs12_trust = keystores.pkcs12_files(contents, profile="")
    assert pkcs12_trust is not None
    trusted = reader.load_pkcs12(pkcs12_trust, b"changeit").additional_certs
    assert [entry.certificate for entry in trusted] == [read_certificate(pem).parsed for pem in (ca, other)]
    _, jks_trust = keystores.jks_files(contents, alias="", now=NOW)
    assert jks_trust is not None
    (tmp_path / "t.jks").write_bytes(jks_trust)
    listed = run(keytool, "-list", "-keystore", str(tmp_path / "t.jks"), "-storepass", "changeit")
    assert ("ca, " in listed, "ca-1, " in listed) == (True, True)


def test_without_a_ca_there_is_no_trust_store() -> None:
    key, chain, _ = material(KeyAlgorithm.ECDSA)
    _, jks_trust = keystores.jks_files(keystores.Contents(key, chain, b"", "x"), alias="", now=NOW)
    _, p12_trust = keystores.pkcs12_files(keystores.Contents(key, chain, b"", "x"), profile="")
    assert (jks_trust, p12_trust) == (None, None)


def test_a_key_that_cannot_be_read_is_told_as_such() -> None:
    _, chain, ca = material(KeyAlgorithm.ECDSA)
    with pytest.raises(BadKey):
        keystores.pkcs12_files(keystores.Contents(b"rubbish", chain, ca, "x"), profile="")


@pytest.mark.parametrize(
    ("bits", "key", "plain", "cipher"),
    [
        (63, "0000000000000000", "0000000000000000", "ebb773f993278eff"),
        (64, "ffffffffffffffff", "ffffffffffffffff", "278b27e42e2f0d49"),
        (64, "3000000000000000", "1000000000000001", "30649edf9be7d2c2"),
        (64, "88", "0000000000000000", "61a8a244adacccf0"),
        (64, "88bca90e90875a", "0000000000000000", "6ccf4308974c267f"),
        (64, "88bca90e90875a7f0f79c384627bafb2", "0000000000000000", "1a807d272bbe5db1"),
        (128, "88bca90e90875a7f0f79c384627bafb2", "0000000000000000", "2269552ab0f85ca6"),
    ],
)
def test_rc2_gives_what_its_rfc_says(bits: int, key: str, plain: str, cipher: str) -> None:
    encrypted = pkcs12.encrypt_cbc(
        bytes.fromhex(plain), key=bytes.fromhex(key), effective_bits=bits, iv=bytes(8)
    )
    assert encrypted[:8].hex() == cipher
