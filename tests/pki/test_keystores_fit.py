"""Whether a key store that is there is as wanted, told without making another one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from certwright.pki import jks, keystores, pkcs12
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


def test_a_java_key_store_gives_back_what_was_put_in() -> None:
    made = jks.key_store(jks.KeyEntry("Web", b"key", (b"a", b"b")), [("ca", b"c")], password="x", now=NOW)
    assert jks.open_store(made, password="x") == jks.Opened(
        (jks.KeyEntry("web", b"key", (b"a", b"b")),), (("ca", b"c"),)
    )
