"""Common content of requests and certificates: names and public key.

Source: RFC 5280 §4.1 and §4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cryptography import x509
from cryptography.x509.oid import ObjectIdentifier

from certwright.pki import names, sans, spki, usages
from certwright.pki.names import Subject
from certwright.pki.sans import NameConstraints, OtherName

E = TypeVar("E", bound=x509.ExtensionType)
Extensions = Mapping[ObjectIdentifier, x509.Extension[x509.ExtensionType]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Names and public key.

    DNS names are A-labels, IP addresses in canonical form. `spki` is the public key as encoded. Several
    values of one subject field are in the order of their encoding (X.690 §11.6), whatever order they were
    written in.
    """

    subject: Subject
    common_name: str
    dns_names: tuple[str, ...]
    ip_addresses: tuple[str, ...]
    uris: tuple[str, ...]
    email_addresses: tuple[str, ...]
    other_names: tuple[OtherName, ...]
    name_constraints: NameConstraints | None
    spki: bytes = field(repr=False)

    @property
    def public_key_der(self) -> bytes:
        """The SubjectPublicKeyInfo: compare it with `keys.public_key_der`."""
        return spki.canonical(self.spki)

    @property
    def is_ml_dsa(self) -> bool:
        """Whether the public key is one of ML-DSA."""
        return spki.is_ml_dsa(self.spki)


def identity_of(
    parsed: x509.Certificate | x509.CertificateSigningRequest, extensions: Extensions
) -> dict[str, Any]:
    """The fields of `Identity` except the public key. Raises whatever `cryptography` raises: call it inside
    a `border`."""
    subject, common_name = names.read_subject(parsed.subject)
    alternative = sans.read(value_of(extensions, x509.SubjectAlternativeName))
    return {
        "subject": subject,
        "common_name": common_name,
        "dns_names": alternative.dns_names,
        "ip_addresses": alternative.ip_addresses,
        "uris": alternative.uris,
        "email_addresses": alternative.email_addresses,
        "other_names": alternative.other_names,
        "name_constraints": _constraints_of(extensions),
    }


def _constraints_of(extensions: Extensions) -> NameConstraints | None:
    extension = extensions.get(x509.NameConstraints.oid)
    if extension is None or not isinstance(extension.value, x509.NameConstraints):
        return None
    return sans.read_constraints(extension.value, critical=extension.critical)


def extensions_of(parsed: x509.Certificate | x509.CertificateSigningRequest) -> Extensions:
    """The extensions by their OID; a duplicate is an error (RFC 5280 §4.2)."""
    return {extension.oid: extension for extension in parsed.extensions}


def value_of(extensions: Extensions, kind: type[E]) -> E | None:
    """The value of the extension of that type, if it exists."""
    extension = extensions.get(kind.oid)
    return extension.value if extension is not None and isinstance(extension.value, kind) else None


def usages_of(extensions: Extensions) -> tuple[str, ...] | None:
    """Key usages and extended key usages by their wire names; None if both extensions are missing."""
    key_usage, extended = value_of(extensions, x509.KeyUsage), value_of(extensions, x509.ExtendedKeyUsage)
    if key_usage is None and extended is None:
        return None
    return usages.names_of(key_usage, extended)
