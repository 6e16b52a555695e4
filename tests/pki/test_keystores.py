"""The four kinds of key store, read back by the programs that people read them with."""

from __future__ import annotations

import hashlib
import hmac
import struct
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12 as reader

from certwright.pki import der, jks, keys, keystores, pkcs12
from certwright.pki.certificates import read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.errors import BadKey
from certwright.pki.keys import KeyAlgorithm, KeyPlan
from certwright.pki.pkcs12 import Profile
from certwright.pki.signing import self_sign, sign
from pki.conftest import Openssl
from support.real import require

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PASSWORD = "pässwörd 1"
OPENED = ("-in", "store", "-passin", f"pass:{PASSWORD}")
ALGORITHMS = [KeyAlgorithm.RSA, KeyAlgorithm.ECDSA, KeyAlgorithm.ED25519]
OTHER = KeyAlgorithm.RSA
ROUNDS = der.integer(pkcs12.ROUNDS)
MORE_ROUNDS = der.integer(2**15 - 1)
BOMB = der.integer(2**31 - 1)
PARAMETERS = der.sequence(der.octets(b"salt"), BOMB)
SHROUDED = der.sequence(der.sequence(der.oid("1.2.840.113549.1.12.1.3"), PARAMETERS), der.octets(bytes(8)))


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


def contents_of(algorithm: KeyAlgorithm, **changed: Any) -> keystores.Contents:
    """The pair and the password, with what a case changes."""
    key, chain, ca = material(algorithm)
    return keystores.Contents(key, chain, ca, PASSWORD)._replace(**changed)


def listed(store: bytes, tmp_path: Path) -> str:
    """What keytool lists of a store with the password `changeit`."""
    (tmp_path / "store").write_bytes(store)
    return run(require("keytool"), "-list", "-keystore", str(tmp_path / "store"), "-storepass", "changeit")


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("profile", [p for p in Profile if p is not Profile.MODERN_2026])
def test_openssl_reads_every_pkcs12_profile(
    openssl: Openssl, profile: Profile, algorithm: KeyAlgorithm
) -> None:
    key = material(algorithm)[0]
    made, trust = keystores.pkcs12_files(contents_of(algorithm), profile=profile)
    assert trust is not None
    printed = openssl("pkcs12", "-legacy", *OPENED, "-nodes", store=made)
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
    openssl: Openssl, profile: Profile, certificates: str, key: str
) -> None:
    made, _ = keystores.pkcs12_files(contents_of(KeyAlgorithm.ECDSA), profile=profile)
    shown = openssl("pkcs12", "-legacy", *OPENED, "-info", "-noout", store=made)
    encrypted = next(line for line in shown.splitlines() if line.startswith("PKCS7 Encrypted data"))
    shrouded = next(line for line in shown.splitlines() if line.startswith("Shrouded Keybag"))
    assert certificates in encrypted
    assert key in shrouded
    assert f"Iteration {pkcs12.ROUNDS}" in encrypted


def test_the_newest_profile_is_sealed_with_pbmac1(openssl: Openssl) -> None:
    made, _ = keystores.pkcs12_files(contents_of(KeyAlgorithm.ECDSA), profile="Modern2026")
    # Only openssl 3.4 and later know PBMAC1: the content is read without the check here, and the check is
    # made by hand below.
    printed = openssl("pkcs12", "-nomacver", *OPENED, "-nodes", store=made)
    assert printed.count("BEGIN CERTIFICATE") == 2
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
    contents = contents_of(algorithm, password="changeit")
    made, trust = keystores.jks_files(contents, alias=alias, now=NOW)
    assert trust is not None
    (tmp_path / "k.jks").write_bytes(made)
    entries = listed(made, tmp_path)
    assert f"{alias.lower()}, " in entries
    assert "PrivateKeyEntry" in entries
    assert ("ca-1, " if alias == "CA" else "ca, ") in entries
    assert keystores.jks_fits(made, trust, contents, alias=alias)
    assert "trustedCertEntry" in listed(trust, tmp_path)
    store = ("-srckeystore", str(tmp_path / "k.jks"), "-srcstorepass", "changeit")
    source = (*store, "-srcalias", alias.lower())
    target = ("-destkeystore", str(tmp_path / "k.p12"), "-deststorepass", "changeit")
    kind = ("-deststoretype", "PKCS12")
    run(keytool, "-importkeystore", "-noprompt", *source, *target, *kind)
    private_key, _, _ = reader.load_key_and_certificates((tmp_path / "k.p12").read_bytes(), b"changeit")
    assert private_key is not None
    assert (
        private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        == contents.key_pem
    )


@pytest.mark.parametrize("profile", ["", "LegacyDES", "Modern2023"])
def test_keytool_takes_the_certificates_of_a_pkcs12_trust_store_for_trusted(
    tmp_path: Path, profile: str
) -> None:
    contents = contents_of(KeyAlgorithm.ECDSA, password="changeit")
    _, trust = keystores.pkcs12_files(contents, profile=profile)
    assert trust is not None
    assert "ca, " in (entries := listed(trust, tmp_path))
    assert "trustedCertEntry" in entries


def test_all_certificates_of_the_ca_are_in_the_trust_stores(tmp_path: Path) -> None:
    ca, other = material(KeyAlgorithm.ECDSA)[2], material(KeyAlgorithm.ED25519)[2]
    contents = contents_of(KeyAlgorithm.ECDSA, ca_pem=ca + other, password="changeit")
    _, pkcs12_trust = keystores.pkcs12_files(contents, profile="")
    assert pkcs12_trust is not None
    trusted = reader.load_pkcs12(pkcs12_trust, b"changeit").additional_certs
    assert [entry.certificate for entry in trusted] == [read_certificate(pem).parsed for pem in (ca, other)]
    _, jks_trust = keystores.jks_files(contents, alias="", now=NOW)
    assert jks_trust is not None
    entries = listed(jks_trust, tmp_path)
    assert ("ca, " in entries, "ca-1, " in entries) == (True, True)


def test_without_a_ca_there_is_no_trust_store() -> None:
    contents = contents_of(KeyAlgorithm.ECDSA, ca_pem=b"")
    _, jks_trust = keystores.jks_files(contents, alias="", now=NOW)
    _, p12_trust = keystores.pkcs12_files(contents, profile="")
    assert (jks_trust, p12_trust) == (None, None)


def test_a_key_that_cannot_be_read_is_told_as_such() -> None:
    with pytest.raises(BadKey):
        keystores.pkcs12_files(contents_of(KeyAlgorithm.ECDSA, key_pem=b"rubbish"), profile="")


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


def cases() -> list[Any]:
    """What may have changed since the store was made."""
    key, chain, ca = material(OTHER)
    return [
        pytest.param({"password": "other"}, id="password"),
        pytest.param({"key_pem": key, "chain_pem": chain}, id="pair"),
        pytest.param({"ca_pem": ca}, id="CA"),
        pytest.param({"ca_pem": b""}, id="no CA any more"),
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("profile", Profile)
def test_a_pkcs12_file_fits_what_it_was_made_for(profile: Profile, algorithm: KeyAlgorithm) -> None:
    made, trust = keystores.pkcs12_files(contents_of(algorithm), profile=profile)
    assert keystores.pkcs12_fits(made, trust, contents_of(algorithm), profile=profile)
    assert pkcs12.profile_of(made) is profile
    others = [other for other in Profile if other is not profile]
    assert not any(
        keystores.pkcs12_fits(made, trust, contents_of(algorithm), profile=other) for other in others
    )


@pytest.mark.parametrize(
    ("profile", "arguments"),
    [
        ("Modern2023", "-keypbe AES-256-CBC -certpbe AES-256-CBC -macalg sha256 -iter 2048"),
        ("LegacyRC2", "-legacy -keypbe PBE-SHA1-3DES -certpbe PBE-SHA1-RC2-40 -macalg sha1 -iter 2048"),
        (
            "LegacyDES",
            "-legacy -keypbe PBE-SHA1-3DES -certpbe PBE-SHA1-3DES -macalg sha1 -nomaciter",
        ),
    ],
)
def test_a_pkcs12_file_of_another_program_fits(
    profile: str, arguments: str, openssl: Callable[..., str], tmp_path: Path
) -> None:
    contents = contents_of(KeyAlgorithm.ECDSA)
    names = ("-inkey", "key", "-in", "chain", "-certfile", "ca", "-out", str(tmp_path / "store"))
    password = ("-passout", f"pass:{PASSWORD}")
    files = {"key": contents.key_pem, "chain": contents.chain_pem, "ca": contents.ca_pem}
    openssl("pkcs12", "-export", *names, *password, *arguments.split(), **files)
    trust = keystores.pkcs12_files(contents, profile=profile)[1]
    assert keystores.pkcs12_fits((tmp_path / "store").read_bytes(), trust, contents, profile=profile)


@pytest.mark.parametrize("changed", cases())
def test_a_pkcs12_file_does_not_fit_anything_else(changed: dict[str, Any]) -> None:
    made, trust = keystores.pkcs12_files(contents_of(KeyAlgorithm.ECDSA), profile="")
    assert not keystores.pkcs12_fits(made, trust, contents_of(KeyAlgorithm.ECDSA, **changed), profile="")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("alias", ["", "Web", "ä😀\0"])
def test_a_java_key_store_fits_what_it_was_made_for(alias: str, algorithm: KeyAlgorithm) -> None:
    made, trust = keystores.jks_files(contents_of(algorithm), alias=alias, now=NOW)
    assert keystores.jks_fits(made, trust, contents_of(algorithm), alias=alias)
    assert not keystores.jks_fits(made, trust, contents_of(algorithm), alias="another")


@pytest.mark.parametrize("changed", cases())
def test_a_java_key_store_does_not_fit_anything_else(changed: dict[str, Any]) -> None:
    made, trust = keystores.jks_files(contents_of(KeyAlgorithm.ECDSA), alias="", now=NOW)
    assert not keystores.jks_fits(made, trust, contents_of(KeyAlgorithm.ECDSA, **changed), alias="")


@pytest.mark.parametrize("damage", ["empty", "cut", "rubbish", "flipped", "no trust store"])
def test_damaged_files_do_not_fit_and_raise_nothing(damage: str) -> None:
    p12, p12_trust = keystores.pkcs12_files(contents_of(KeyAlgorithm.ECDSA), profile="Modern2023")
    java, java_trust = keystores.jks_files(contents_of(KeyAlgorithm.ECDSA), alias="", now=NOW)

    def spoiled(content: bytes) -> bytes:
        match damage:
            case "empty":
                return b""
            case "cut":
                return content[:-1]
            case "rubbish":
                return b"rubbish"
            case "flipped":
                return content[:60] + bytes((content[60] ^ 1,)) + content[61:]
        return content

    gone = damage == "no trust store"
    keep = contents_of(KeyAlgorithm.ECDSA)
    assert not keystores.pkcs12_fits(spoiled(p12), None if gone else p12_trust, keep, profile="Modern2023")
    assert not keystores.jks_fits(spoiled(java), None if gone else java_trust, keep, alias="")


@pytest.mark.parametrize("profile", Profile)
def test_a_pkcs12_file_with_more_iterations_than_ours_is_not_computed(profile: Profile) -> None:
    made, _ = keystores.pkcs12_files(contents_of(KeyAlgorithm.ECDSA), profile=profile)
    certificates, key, mac, end = made.split(ROUNDS)
    changed = ROUNDS.join((certificates, key, mac)) + MORE_ROUNDS + end
    with pytest.raises(ValueError, match="iteration count"):
        pkcs12.open_store(changed, password=PASSWORD)
    assert not keystores.pkcs12_fits(changed, None, contents_of(KeyAlgorithm.ECDSA), profile=profile)


def pfx(*parts: bytes, password: str = PASSWORD) -> bytes:
    """A file with these parts and a valid MAC of one iteration."""
    safe = der.sequence(*parts)
    key = pkcs12._derive(password, b"salt", purpose=3, size=20, rounds=1)
    info = der.sequence(der.sequence(der.oid(SHA1), der.null()), der.octets(hmac.digest(key, safe, "sha1")))
    content = der.sequence(der.oid(DATA), der.element(der.CONTEXT_0, der.octets(safe)))
    return der.sequence(der.integer(3), content, der.sequence(info, der.octets(b"salt")))


def part(*bags: bytes) -> bytes:
    return der.sequence(der.oid(DATA), der.element(der.CONTEXT_0, der.octets(der.sequence(*bags))))


def bag(kind: int, *content: bytes) -> bytes:
    return der.sequence(der.oid(f"1.2.840.113549.1.12.10.1.{kind}"), der.element(der.CONTEXT_0, *content))


SHA1, DATA = "1.3.14.3.2.26", "1.2.840.113549.1.7.1"


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        pytest.param([part(bag(2, SHROUDED))], "iteration count", id="a key below 2^31 iterations"),
        pytest.param(
            [pkcs12._rc2_encrypted(der.sequence(bag(2, SHROUDED)), PASSWORD)],
            "iteration count",
            id="such a key in an encrypted part",
        ),
        pytest.param([part()] * 3, "more parts", id="three parts"),
        pytest.param([part(bag(6, der.sequence()))], "other entries", id="a nested safe"),
        pytest.param(
            [part(bag(3, der.sequence(der.oid(DATA), der.element(der.CONTEXT_0, der.octets(b"x")))))] * 2,
            "",
            id="certificates only",
        ),
        pytest.param([part(der.octets(bytes(300_000)))], "larger", id="300 kB"),
    ],
)
def test_what_is_expensive_in_a_pkcs12_file_with_a_valid_mac_is_refused(
    parts: list[bytes], sentence: str
) -> None:
    if not sentence:
        assert pkcs12.open_store(pfx(*parts), password=PASSWORD).others == {b"x"}
        return
    with pytest.raises(ValueError, match=sentence):
        pkcs12.open_store(pfx(*parts), password=PASSWORD)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(struct.pack(">III", 0xFEEDFEED, 2, 10**6), id="a million entries announced"),
        pytest.param(
            struct.pack(">IIIIHQ", 0xFEEDFEED, 2, 1, 1, 0, 0) + struct.pack(">II", 0, 2**32 - 1),
            id="four milliards of certificates announced",
        ),
        pytest.param(struct.pack(">IIIIHQI", 0xFEEDFEED, 2, 1, 2, 0, 0, 2**16) + b"x", id="a long text"),
        pytest.param(bytes(300_000), id="300 kB"),
    ],
)
def test_a_java_key_store_is_read_no_further_than_it_reaches(content: bytes) -> None:
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()  # noqa: S324
    with pytest.raises(ValueError, match=r"too early|larger"):
        jks.open_store(content + digest, password=PASSWORD)


def test_a_java_key_store_gives_back_what_was_put_in() -> None:
    made = jks.key_store(jks.KeyEntry("Web", b"key", (b"a", b"b")), [("ca", b"c")], password="x", now=NOW)
    assert jks.open_store(made, password="x") == jks.Opened(
        (jks.KeyEntry("web", b"key", (b"a", b"b")),), (("ca", b"c"),)
    )
