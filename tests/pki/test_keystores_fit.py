"""Whether a key store that is there is as wanted, told without making another one."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from certwright.pki import der, jks, keystores, pkcs12
from certwright.pki.keys import KeyAlgorithm
from certwright.pki.pkcs12 import Profile
from pki.test_keystores import material

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PASSWORD = "pässwörd 1"
ALGORITHMS = [KeyAlgorithm.RSA, KeyAlgorithm.ECDSA, KeyAlgorithm.ED25519]
OTHER = KeyAlgorithm.RSA


def contents_of(algorithm: KeyAlgorithm, **changed: Any) -> keystores.Contents:
    """The pair and the password, with what a case changes."""
    key, chain, ca = material(algorithm)
    return keystores.Contents(key, chain, ca, PASSWORD)._replace(**changed)


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


ROUNDS = der.integer(pkcs12.ROUNDS)
MORE_ROUNDS = der.integer(2**15 - 1)
BOMB = der.integer(2**31 - 1)


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
    """Bags without encryption."""
    return der.sequence(der.oid(DATA), der.element(der.CONTEXT_0, der.octets(der.sequence(*bags))))


def bag(kind: int, *content: bytes) -> bytes:
    return der.sequence(der.oid(f"1.2.840.113549.1.12.10.1.{kind}"), der.element(der.CONTEXT_0, *content))


SHA1, DATA = "1.3.14.3.2.26", "1.2.840.113549.1.7.1"
PARAMETERS = der.sequence(der.octets(b"salt"), BOMB)
SHROUDED = der.sequence(der.sequence(der.oid("1.2.840.113549.1.12.1.3"), PARAMETERS), der.octets(bytes(8)))


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
