"""Subjects: distinguished names from the fields of a spec or from RFC 4514 text, and back.

Source: RFC 5280 §4.1.2.4 and Appendix A.1 (attributes and their bounds), RFC 4514 (text), RFC 4519 (names of
attribute types); the order of the fields is that of Go's `pkix.Name.ToRDNSequence`, which cert-manager uses,
and like Go (`encoding/asn1`) we encode any value, be it empty or a country of more than two letters.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import cast

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

from certwright.kit import rfc4514
from certwright.pki import der
from certwright.pki.errors import BadName, border


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of a subject besides the common name."""

    countries: tuple[str, ...] = ()
    organizations: tuple[str, ...] = ()
    organizational_units: tuple[str, ...] = ()
    localities: tuple[str, ...] = ()
    provinces: tuple[str, ...] = ()
    street_addresses: tuple[str, ...] = ()
    postal_codes: tuple[str, ...] = ()
    serial_number: str = ""


NO_SUBJECT = Subject()

_LISTS: dict[str, ObjectIdentifier] = {
    "countries": NameOID.COUNTRY_NAME,
    "organizations": NameOID.ORGANIZATION_NAME,
    "organizational_units": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "localities": NameOID.LOCALITY_NAME,
    "provinces": NameOID.STATE_OR_PROVINCE_NAME,
    "street_addresses": NameOID.STREET_ADDRESS,
    "postal_codes": NameOID.POSTAL_CODE,
}
"""The list fields of `Subject` in their X.509 order; CN and serialNumber follow."""

ATTRIBUTE_TYPES: dict[str, ObjectIdentifier] = {
    # RFC 4514 §3 requires these nine …
    "CN": NameOID.COMMON_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "C": NameOID.COUNTRY_NAME,
    "STREET": NameOID.STREET_ADDRESS,
    "DC": NameOID.DOMAIN_COMPONENT,
    "UID": NameOID.USER_ID,
    # … and these occur in practice, under the names of RFC 4519 and OpenSSL.
    "SERIALNUMBER": NameOID.SERIAL_NUMBER,
    "POSTALCODE": NameOID.POSTAL_CODE,
    "SN": NameOID.SURNAME,
    "GIVENNAME": NameOID.GIVEN_NAME,
    "TITLE": NameOID.TITLE,
    "INITIALS": NameOID.INITIALS,
    "GENERATIONQUALIFIER": NameOID.GENERATION_QUALIFIER,
    "DNQUALIFIER": NameOID.DN_QUALIFIER,
    "EMAILADDRESS": NameOID.EMAIL_ADDRESS,
    "ORGANIZATIONIDENTIFIER": NameOID.ORGANIZATION_IDENTIFIER,
}
"""The attribute types that a literal subject may name; others are given as OIDs."""

_SHOWN: dict[ObjectIdentifier, str] = {oid: name for name, oid in ATTRIBUTE_TYPES.items()}

# X.680 §41.4, the characters of PrintableString.
_PRINTABLE = re.compile(r"[A-Za-z0-9 '()+,\-./:=?]*", re.ASCII)
_PRINTABLE_ONLY = {NameOID.COUNTRY_NAME, NameOID.SERIAL_NUMBER, NameOID.DN_QUALIFIER}
_ASCII_ONLY = {NameOID.DOMAIN_COMPONENT, NameOID.EMAIL_ADDRESS}
_MAX_COMMON_NAME = 64

# cryptography reads names beyond the bounds of RFC 5280, and warns about each. They are common, and
# operators of a server can do nothing about them.
warnings.filterwarnings("ignore", "Attribute's length must be ", UserWarning)


def subject_name(subject: Subject, common_name: str = "", literal_subject: str = "") -> x509.Name:
    """The X.509 name. `literal_subject` is RFC 4514 text and, unless empty, replaces the other two.

    Several values of one field become one multi-valued RDN, as in Go. Raises `BadName`.
    """
    if literal_subject:
        return literal_name(literal_subject)
    fields = () if subject is NO_SUBJECT else _LISTS.items()
    rdns = [_rdn([(oid, value) for value in getattr(subject, name)]) for name, oid in fields]
    rdns.append(_rdn([(NameOID.COMMON_NAME, common_name)] if common_name else []))
    serial_number = subject.serial_number
    rdns.append(_rdn([(NameOID.SERIAL_NUMBER, serial_number)] if serial_number else []))
    return x509.Name([rdn for rdn in rdns if rdn is not None])


def literal_name(text: str) -> x509.Name:
    """The X.509 name for RFC 4514 text. Raises `BadName`.

    RFC 4514 §2.1: "the output consists of the string encodings of each RelativeDistinguishedName in the
    RDNSequence […], starting with the last element of the sequence and moving backwards toward the first."
    """
    try:
        parsed = rfc4514.parse(text)
    except ValueError as error:
        raise BadName(f"the literal subject cannot be read: {error}") from None
    rdns = [_rdn([(_type(attribute), attribute.value) for attribute in rdn]) for rdn in reversed(parsed)]
    return x509.Name([rdn for rdn in rdns if rdn is not None])


def _type(attribute: rfc4514.Attribute) -> ObjectIdentifier:
    if attribute.hex_value is not None:
        raise BadName(f"{attribute.type}: a value in hexadecimal form (#…) is not supported in a subject")
    # RFC 4512 §1.4: descriptors are case-insensitive.
    known = ATTRIBUTE_TYPES.get(attribute.type.upper())
    if known is not None:
        return known
    if not attribute.type[0].isdigit():
        raise BadName(f'"{attribute.type}" is not a known attribute of a subject; write its number with dots')
    with border(BadName, f'"{attribute.type}" is not an object identifier'):
        return ObjectIdentifier(attribute.type)


def _rdn(values: Iterable[tuple[ObjectIdentifier, str]]) -> x509.RelativeDistinguishedName | None:
    # A SET contains each element once.
    attributes = [_attribute(oid, value) for oid, value in dict.fromkeys(values)]
    return x509.RelativeDistinguishedName(attributes) if attributes else None


def _attribute(oid: ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
    name = _SHOWN.get(oid, oid.dotted_string)
    if problem := _problem(oid, value):
        raise BadName(f'the subject attribute {name} cannot be "{value}": {problem}')
    with border(BadName, f'the subject attribute {name} cannot be "{value}"', detail=True):
        return x509.NameAttribute(oid, value) if _is_usual(oid, value) else _unusual(oid, value)


def _is_usual(oid: ObjectIdentifier, value: str) -> bool:
    """Whether the value is within the bounds of RFC 5280 Appendix A.1, which cryptography enforces."""
    # "X520countryName ::= PrintableString (SIZE (2))", "X520CommonName ::= […] (SIZE (1..ub-common-name))"
    if (oid == NameOID.COUNTRY_NAME and len(value) != 2) or (oid == NameOID.COMMON_NAME and not value):
        return False
    if oid in _PRINTABLE_ONLY:
        return _PRINTABLE.fullmatch(value) is not None
    return value.isascii() or oid not in _ASCII_ONLY


def _unusual(oid: ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
    """The attribute as Go encodes it: a PrintableString if possible, otherwise a UTF8String.

    cryptography does not build such an attribute, but parses it.
    """
    tag = der.PRINTABLE_STRING if _PRINTABLE.fullmatch(value) else der.UTF8_STRING
    attribute = der.sequence(der.oid(oid.dotted_string), der.element(tag, value.encode()))
    name = x509.Name.from_bytes(der.sequence(der.element(der.SET, attribute)))
    return cast(x509.NameAttribute[str], name.rdns[0].get_attributes_for_oid(oid)[0])


_NUL = "it has a NUL character, where programs in C end the text"


def _problem(oid: ObjectIdentifier, value: str) -> str:
    # RFC 5280 Appendix A.1: "ub-common-name INTEGER ::= 64". This bound is cert-manager's as well.
    if oid == NameOID.COMMON_NAME and len(value.encode("utf-8", "surrogatepass")) > _MAX_COMMON_NAME:
        return f"a common name has at most {_MAX_COMMON_NAME} bytes"
    if "\0" in value:
        return _NUL
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        return "it is not Unicode text"
    return ""


def check(name: x509.Name) -> None:
    """Raises `BadName` for a name that `subject_name` would not make: with a NUL character."""
    for attribute in name:
        if isinstance(attribute.value, str) and "\0" in attribute.value:
            raise BadName(f"the subject has the value {attribute.value!r}: {_NUL}")


def read_subject(name: x509.Name) -> tuple[Subject, str]:
    """The fields and the (last) common name of an X.509 name; other attributes are dropped."""
    values: dict[ObjectIdentifier, list[str]] = {}
    for attribute in name:
        if isinstance(attribute.value, str):
            values.setdefault(attribute.oid, []).append(attribute.value)
    fields = {field: tuple(values[oid]) for field, oid in _LISTS.items() if oid in values}
    serial_number = values.get(NameOID.SERIAL_NUMBER, [""])[-1]
    common_name = values.get(NameOID.COMMON_NAME, [""])[-1]
    if not fields and not serial_number:
        return NO_SUBJECT, common_name
    return Subject(serial_number=serial_number, **fields), common_name


def text_of(name: x509.Name) -> str:
    """The name as RFC 4514 text; empty for the empty name."""
    return ",".join("+".join(map(_text, rdn)) for rdn in reversed(name.rdns))


def _text(attribute: x509.NameAttribute[str | bytes]) -> str:
    name = _SHOWN.get(attribute.oid, attribute.oid.dotted_string)
    value = attribute.value
    return f"{name}={rfc4514.escape(value) if isinstance(value, str) else '#' + value.hex()}"
