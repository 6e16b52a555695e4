"""Keys, requests and certificates in the forms in which Go, and so cert-manager, writes them.

Made with `cryptography` alone, not with our own `pki`: what our own code has written it can certainly read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
_PEM = serialization.Encoding.PEM
_NO_PASSWORD = serialization.NoEncryption()
# In the order in which Go writes a name (crypto/x509/pkix, `Name.ToRDNSequence`).
_SUBJECT = {
    "countries": NameOID.COUNTRY_NAME,
    "organizations": NameOID.ORGANIZATION_NAME,
    "organizationalUnits": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "localities": NameOID.LOCALITY_NAME,
    "provinces": NameOID.STATE_OR_PROVINCE_NAME,
    "streetAddresses": NameOID.STREET_ADDRESS,
    "postalCodes": NameOID.POSTAL_CODE,
}


def new_key(algorithm: str = "ECDSA") -> Key:
    """A key of the smallest size that the API allows."""
    if algorithm == "RSA":
        return rsa.generate_private_key(65537, 2048)
    return (
        ed25519.Ed25519PrivateKey.generate()
        if algorithm == "Ed25519"
        else ec.generate_private_key(ec.SECP256R1())
    )


def key_pem(key: Key, encoding: str = "PKCS1") -> bytes:
    """`PKCS1` is Go's `RSA PRIVATE KEY` or `EC PRIVATE KEY`; Ed25519 has PKCS#8 only."""
    forms = serialization.PrivateFormat
    plain = encoding == "PKCS8" or isinstance(key, ed25519.Ed25519PrivateKey)
    return key.private_bytes(_PEM, forms.PKCS8 if plain else forms.TraditionalOpenSSL, _NO_PASSWORD)


@dataclass(frozen=True, kw_only=True)
class Names:
    """What a Certificate asks for, by the names of its spec."""

    common_name: str = ""
    subject: dict[str, list[str]] = field(default_factory=dict)
    serial_number: str = ""
    dns: Sequence[str] = ()
    ips: Sequence[str] = ()
    uris: Sequence[str] = ()
    emails: Sequence[str] = ()
    is_ca: bool = False

    @property
    def name(self) -> x509.Name:
        rdns = [
            x509.RelativeDistinguishedName([x509.NameAttribute(oid, value) for value in self.subject[entry]])
            for entry, oid in _SUBJECT.items()
            if self.subject.get(entry)
        ]
        if self.common_name:
            rdns.append(
                x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.COMMON_NAME, self.common_name)])
            )
        if self.serial_number:
            last = x509.NameAttribute(NameOID.SERIAL_NUMBER, self.serial_number)
            rdns.append(x509.RelativeDistinguishedName([last]))
        return x509.Name(rdns)

    @property
    def alternative(self) -> x509.SubjectAlternativeName | None:
        general_names: list[x509.GeneralName] = [x509.DNSName(name) for name in self.dns]
        general_names += [x509.RFC822Name(email) for email in self.emails]
        general_names += [x509.IPAddress(ip_address(address)) for address in self.ips]
        general_names += [x509.UniformResourceIdentifier(uri) for uri in self.uris]
        return x509.SubjectAlternativeName(general_names) if general_names else None


def _usages(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _hash(key: Key) -> hashes.SHA256 | None:
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()


def csr_pem(key: Key, names: Names, *, usages: bool = True, client: bool = False) -> bytes:
    """A request as `pki.GenerateCSR` makes it: no basic constraints, not even for a CA (that is a gate)."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(names.name)
    if names.alternative is not None:
        builder = builder.add_extension(names.alternative, critical=not names.name.rdns)
    if usages:
        builder = builder.add_extension(_usages(is_ca=names.is_ca), critical=True)
    if client:
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    return builder.sign(key, _hash(key)).public_bytes(_PEM)


@dataclass(frozen=True)
class Authority:
    """Who signs: a self-signed root, or one below it."""

    name: x509.Name
    key: Key
    pem: bytes
    chain: bytes = b""
    """What goes behind a leaf: those between it and the root."""

    def sign(self, key: Key, names: Names, begin: datetime, life: timedelta) -> bytes:
        """A certificate, leaf first, with the chain behind it."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(names.name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + life)
            .add_extension(_usages(is_ca=names.is_ca), critical=True)
            .add_extension(x509.BasicConstraints(ca=names.is_ca, path_length=None), critical=True)
        )
        if names.alternative is not None:
            builder = builder.add_extension(names.alternative, critical=not names.name.rdns)
        return builder.sign(self.key, _hash(self.key)).public_bytes(_PEM) + self.chain


def root(common_name: str, begin: datetime, life: timedelta) -> Authority:
    key, names = new_key(), Names(common_name=common_name, is_ca=True)
    bare = Authority(names.name, key, b"")
    return Authority(names.name, key, bare.sign(key, names, begin, life))


def below(above: Authority, common_name: str, begin: datetime, life: timedelta) -> Authority:
    """An intermediate of that root."""
    key, names = new_key(), Names(common_name=common_name, is_ca=True)
    pem = above.sign(key, names, begin, life)
    return Authority(names.name, key, pem, chain=pem)
