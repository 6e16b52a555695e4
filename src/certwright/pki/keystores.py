"""Key stores for programs that read no PEM: the four files that a Certificate's `spec.keystores` can request.

Source: cert-manager API reference, `CertificateKeystores`; aliases as its `keystore.go` gives them.
"""

from __future__ import annotations

from datetime import datetime
from itertools import count
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certwright.pki import jks, pkcs12
from certwright.pki.certificates import read_chain
from certwright.pki.errors import BadKey, border
from certwright.pki.keys import load_private_key
from certwright.pki.pkcs12 import Profile

DEFAULT_ALIAS = "certificate"


class Contents(NamedTuple):
    """What the files contain, as PEM, and the password that protects it; `ca_pem` is empty where no CA is
    known."""

    key_pem: bytes
    chain_pem: bytes
    ca_pem: bytes
    password: str


def jks_files(contents: Contents, *, alias: str, now: datetime) -> tuple[bytes, bytes | None]:
    """`keystore.jks` and, if a CA is known, `truststore.jks`. `now` dates the entries.

    Raises `BadKey` and `BadCertificate` for unreadable PEM.
    """
    password = contents.password
    alias = alias or DEFAULT_ALIAS
    authorities = _certificates(contents.ca_pem)
    beside_key, trusted = (
        [(name, _der(item)) for name, item in _named(authorities, taken=taken)] for taken in (alias, "")
    )
    chain = tuple(_der(item) for item in _certificates(contents.chain_pem))
    entry = jks.KeyEntry(alias, _pkcs8(contents.key_pem), chain)
    made = jks.key_store(entry, beside_key, password=password, now=now)
    return made, jks.trust_store(trusted, password=password, now=now) if trusted else None


def pkcs12_files(contents: Contents, *, profile: str) -> tuple[bytes, bytes | None]:
    """`keystore.p12` and, if a CA is known, `truststore.p12`. An empty `profile` is LegacyRC2.

    Raises `BadKey` and `BadCertificate` for unreadable PEM, `ValueError` for an unknown profile.
    """
    chosen = Profile(profile or Profile.LEGACY_RC2)
    chain, authorities = _certificates(contents.chain_pem), _certificates(contents.ca_pem)
    with border(BadKey, "the PKCS#12 file cannot be made"):
        made = pkcs12.key_store(
            name=DEFAULT_ALIAS,
            key=load_private_key(contents.key_pem),
            chain=[*chain, *(item for item in authorities if item not in chain)],
            password=contents.password,
            profile=chosen,
        )
        if not authorities:
            return made, None
        return made, pkcs12.trust_store(_named(authorities), password=contents.password, profile=chosen)


def jks_fits(made: bytes, trust: bytes | None, contents: Contents, *, alias: str) -> bool:
    """Whether these files equal the output of `jks_files`, except for salt and dates."""
    trusted = {_der(item) for item in _certificates(contents.ca_pem)}
    chain = tuple(_der(item) for item in _certificates(contents.chain_pem))
    try:
        opened = jks.open_store(made, password=contents.password)
        stored = jks.open_store(trust, password=contents.password).trusted if trust is not None else ()
    except (ValueError, IndexError):
        return False
    return (
        not any(name == (alias or DEFAULT_ALIAS).lower() for name, _ in opened.trusted)
        and opened.keys == (jks.KeyEntry((alias or DEFAULT_ALIAS).lower(), _pkcs8(contents.key_pem), chain),)
        and {item for _, item in opened.trusted} == trusted
        and {item for _, item in stored} == trusted
        and (trust is not None) == bool(trusted)
    )


def pkcs12_fits(made: bytes, trust: bytes | None, contents: Contents, *, profile: str) -> bool:
    """Whether these files equal the output of `pkcs12_files`, except for salt. Takes some milliseconds."""
    authorities = {_der(item) for item in _certificates(contents.ca_pem)}
    leaf, *others = map(_der, _certificates(contents.chain_pem))
    chosen = Profile(profile or Profile.LEGACY_RC2)
    try:
        opened = pkcs12.open_store(made, password=contents.password)
        trusted = (
            pkcs12.open_store(trust, password=contents.password).others if trust is not None else frozenset()
        )
        profiles = {pkcs12.profile_of(file) for file in (made, trust) if file is not None}
    except (ValueError, IndexError):
        return False
    return (
        opened.keys == (_pkcs8(contents.key_pem),)
        and opened.leaf == leaf
        and opened.others == {*others, *authorities} - {leaf}
        and trusted == authorities
        and (trust is not None) == bool(authorities)
        and profiles == {chosen}
    )


def _named(authorities: list[x509.Certificate], *, taken: str = "") -> list[tuple[str, x509.Certificate]]:
    """CA certificates with their aliases: `ca`, `ca-1`, `ca-2` …, without `taken`. Of two entries with one
    alias, in whatever case, Java keeps the last: the private key could not be reached."""
    aliases = (alias for n in count() if (alias := f"ca-{n}" if n else "ca") != taken.lower())
    return list(zip(aliases, authorities, strict=False))


def _certificates(pem: bytes) -> list[x509.Certificate]:
    if not pem:
        return []
    return [facts.parsed for facts in read_chain(pem)]


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _pkcs8(key_pem: bytes) -> bytes:
    return load_private_key(key_pem).private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
