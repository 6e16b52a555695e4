"""Key usages and extended key usages by their wire names.

Source: RFC 5280 §4.2.1.3 (key usage) and §4.2.1.12 (extended key usage), RFC 9881 §5 (keys that only sign);
the names are cert-manager's `KeyUsage` values.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from certwright.pki.errors import BadUsage

Usage = str | ObjectIdentifier
"""A bit of the key usage extension, by its name, or the OID of an extended key usage."""

USAGES: dict[str, Usage] = {
    # Of two names for one usage, `names_of` returns the first.
    "digital signature": "digital_signature",
    "signing": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "data encipherment": "data_encipherment",
    "key agreement": "key_agreement",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": ObjectIdentifier("2.16.840.1.113730.4.1"),
}
"""Every usage name and its meaning: the single source of the other tables."""

DEFAULT_USAGES = ("digital signature", "key encipherment")
SIGNING_USAGES = ("digital signature",)
"""The default usages of a key that only signs."""
CERT_SIGN = "cert sign"

_BITS = tuple(dict.fromkeys(usage for usage in USAGES.values() if isinstance(usage, str)))
_BIT_NAMES = {usage: name for name, usage in reversed(USAGES.items()) if isinstance(usage, str)}
_OID_NAMES = {usage: name for name, usage in reversed(USAGES.items()) if isinstance(usage, ObjectIdentifier)}
_DEPENDENT = ("encipher_only", "decipher_only")
# RFC 9881 §5: none of these may be in the certificate of an ML-DSA key.
_ENCRYPTION = ("key encipherment", "data encipherment", "key agreement", "encipher only", "decipher only")


def complete(usages: Iterable[str], *, is_ca: bool, only_signs: bool = False) -> tuple[str, ...]:
    """The effective usages of a spec: the default ones if none are given, with `cert sign` for a CA.

    `only_signs`: the key cannot encrypt; raises `BadUsage` for usages that need encryption.
    """
    given = tuple(usages) or (SIGNING_USAGES if only_signs else DEFAULT_USAGES)
    if only_signs and (excess := [name for name in given if name in _ENCRYPTION]):
        raise BadUsage(
            f'an ML-DSA key only signs, but the usages include "{excess[0]}" (RFC 9881 §5); leave it out'
        )
    return (*given, CERT_SIGN) if is_ca and CERT_SIGN not in given else given


def canonical(usages: Iterable[str]) -> frozenset[str]:
    """The usages, each under one name (`signing` is `digital signature`): equal sets mean equal extensions.
    Raises `BadUsage` for an unknown name."""
    return frozenset(_canonical(name) for name in usages)


def extended(usages: Iterable[str]) -> frozenset[str]:
    """The extended usages among them, each under one name; also unknown ones, by their OIDs."""
    return frozenset(
        _canonical(name) if name in USAGES else name
        for name in usages
        if not isinstance(USAGES.get(name), str)
    )


def _canonical(name: str) -> str:
    usage = lookup(name)
    return _BIT_NAMES[usage] if isinstance(usage, str) else _OID_NAMES[usage]


def lookup(name: str) -> Usage:
    """The usage of a name. Raises `BadUsage` for an unknown one."""
    try:
        return USAGES[name]
    except KeyError:
        raise BadUsage(f'"{name}" is not a key usage') from None


# Few distinct sets are requested.
@lru_cache(maxsize=256)
def extensions(names: tuple[str, ...]) -> tuple[x509.KeyUsage | None, x509.ExtendedKeyUsage | None]:
    """The two extensions for these usages; None for an empty one. Raises `BadUsage`."""
    usages = [lookup(name) for name in names]
    bits = {usage for usage in usages if isinstance(usage, str)}
    # In the given order, each once, as in Go's encoder.
    oids = list(dict.fromkeys(usage for usage in usages if isinstance(usage, ObjectIdentifier)))
    return _key_usage(bits), x509.ExtendedKeyUsage(oids) if oids else None


def _key_usage(bits: set[str]) -> x509.KeyUsage | None:
    # RFC 5280 §4.2.1.3: "When the keyUsage extension appears in a certificate, at least one of the bits MUST
    # be set to 1."
    if not bits:
        return None
    # "The meaning of the encipherOnly bit is undefined in the absence of the keyAgreement bit." Likewise
    # decipherOnly.
    if "key_agreement" not in bits and bits & set(_DEPENDENT):
        raise BadUsage('"encipher only" and "decipher only" mean nothing without "key agreement"')
    return x509.KeyUsage(**{bit: bit in bits for bit in _BITS})


# Few distinct sets are in use, and each certificate and request has two.
@lru_cache(maxsize=256)
def names_of(key_usage: x509.KeyUsage | None, extended: x509.ExtendedKeyUsage | None) -> tuple[str, ...]:
    """The wire names for two extensions, in the order of `USAGES`; an unknown extended usage is named by its
    dotted OID, at the end."""
    bits = {bit for bit in _BITS if _has(key_usage, bit)} if key_usage is not None else set()
    oids = set(extended) if extended is not None else set()
    known = [name for name, usage in USAGES.items() if usage in bits or usage in oids]
    named = [name for name in known if name == _canonical(name)]
    return (*named, *sorted(oid.dotted_string for oid in oids if oid not in _OID_NAMES))


def _has(key_usage: x509.KeyUsage, bit: str) -> bool:
    # Reading these two without keyAgreement is an error in `cryptography`.
    if bit in _DEPENDENT and not key_usage.key_agreement:
        return False
    return bool(getattr(key_usage, bit))
