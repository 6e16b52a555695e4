"""Subject alternative names and name constraints, from text to X.509 and back.

Source: RFC 5280 §4.2.1.6 and §4.2.1.10, RFC 5890 and UTS #46 (internationalized domain names).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

import idna
import msgspec
from cryptography import x509
from cryptography.x509.oid import ObjectIdentifier

from certwright.pki import der
from certwright.pki.errors import BadName, border

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class OtherName(msgspec.Struct, frozen=True):
    """An otherName. `der` is empty for a UTF8String, otherwise the encoded value."""

    oid: str
    utf8_value: str = ""
    der: bytes = b""


class AltNames(msgspec.Struct, frozen=True, kw_only=True):
    """Alternative names as text: DNS names as A-labels, IP addresses in canonical form."""

    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    email_addresses: tuple[str, ...] = ()
    other_names: tuple[OtherName, ...] = ()


class NameSet(msgspec.Struct, frozen=True, kw_only=True):
    """Permitted or excluded names of a CA. `ip_ranges` are in CIDR form."""

    dns_domains: tuple[str, ...] = ()
    ip_ranges: tuple[str, ...] = ()
    email_addresses: tuple[str, ...] = ()
    uri_domains: tuple[str, ...] = ()


class NameConstraints(msgspec.Struct, frozen=True, kw_only=True):
    """The name constraints of a CA."""

    critical: bool = False
    permitted: NameSet | None = None
    excluded: NameSet | None = None


NO_NAMES = AltNames()


def ascii_dns_name(name: str) -> str:
    """A DNS name as in a certificate: ASCII text unchanged, other text as A-labels.

    Label by label, so that `*` and `_` survive; `Straße.example` becomes `xn--strae-oqa.example` (IDNA 2008
    after the mapping of UTS #46). Raises `BadName`.
    """
    if not name.isascii():
        with border(BadName, f"{name!r} is not a DNS name", detail=True):
            labels = idna.uts46_remap(name, std3_rules=False).split(".")
            if "" in labels[:-1]:
                # A full stop of another script, such as U+3002, is one too.
                raise BadName(f"{name!r} has an empty label")
            return ".".join(label if label.isascii() else idna.encode(label).decode() for label in labels)
    if not name or not name.isprintable() or " " in name:
        raise BadName(f"{name!r} is not a DNS name")
    return name


def canonical_dns_name(name: str) -> str:
    """A DNS name in canonical form for comparisons: lower case, A-labels, no final dot.

    RFC 4343 §3: "comparisons on name lookup for DNS queries should be ASCII case insensitive". CAs write
    names in lower case (Boulder's `UniqueLowerNames`). Text that is not a DNS name only becomes lower case.
    """
    try:
        return ascii_dns_name(name).lower().removesuffix(".")
    except BadName:
        return name.lower()


def parse_ip(text: str) -> IpAddress:
    """Parse an IP address; an IPv4-mapped IPv6 address becomes IPv4. Raises `BadName`."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise BadName(f"{text!r} is not an IP address") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise BadName(f"{text!r} names a network interface, which has no place in a certificate")
        return address.ipv4_mapped or address
    return address


def canonical_ip(text: str) -> str:
    """An IP address in canonical form for comparisons. Raises `BadName`."""
    return str(parse_ip(text))


def extension(names: AltNames) -> x509.SubjectAlternativeName | None:
    """The extension for these names; None without names. Raises `BadName`."""
    entries: list[x509.GeneralName] = [x509.DNSName(ascii_dns_name(name)) for name in names.dns_names]
    entries += [x509.IPAddress(parse_ip(address)) for address in names.ip_addresses]
    entries += [_ascii(x509.UniformResourceIdentifier, uri, "a URI") for uri in names.uris]
    entries += [_ascii(x509.RFC822Name, email, "an email address") for email in names.email_addresses]
    entries += [_other_name(name) for name in names.other_names]
    # Duplicates are dropped.
    return x509.SubjectAlternativeName(list(dict.fromkeys(entries))) if entries else None


def _ascii(kind: Callable[[str], x509.GeneralName], text: str, what: str) -> x509.GeneralName:
    # Both are IA5String (RFC 5280 §4.2.1.6); the author percent-encodes a URI outside it, and an
    # email address outside it would need a name form (RFC 9598) that few programs read.
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        hint = "" if text.isascii() else "; write a domain in its form with xn--"
        raise BadName(f"{text!r} is not {what} in visible ASCII characters{hint}")
    with border(BadName, f"{text!r} is not {what}", detail=True):
        return kind(text)


def _other_name(name: OtherName) -> x509.OtherName:
    with border(BadName, f"{name.oid!r} is not an object identifier"):
        oid = ObjectIdentifier(name.oid)
    with border(BadName, f"the other name of type {name.oid} cannot be encoded"):
        return x509.OtherName(oid, name.der or der.element(der.UTF8_STRING, name.utf8_value.encode()))


def _read_other_name(name: x509.OtherName) -> OtherName:
    oid = name.type_id.dotted_string
    try:
        text = der.read(name.value)[0].content.decode()
    except (ValueError, IndexError):
        return OtherName(oid, der=name.value)
    is_text = name.value == der.element(der.UTF8_STRING, text.encode())
    return OtherName(oid, text) if is_text else OtherName(oid, der=name.value)


def check(extension_value: x509.SubjectAlternativeName | None) -> None:
    """Raises `BadName` for an extension that `extension` would not make: empty (RFC 5280 §4.2.1.6, "the
    sequence MUST contain at least one entry"), or with an empty name, a blank or a control character."""
    if extension_value is None:
        return
    names = read(extension_value)
    if not list(extension_value):
        raise BadName("the subjectAltName extension has no name in it; leave the extension out")
    for kind, values in (
        ("DNS name", names.dns_names),
        ("URI", names.uris),
        ("email address", names.email_addresses),
    ):
        for value in values:
            if not value or not value.isprintable() or " " in value:
                raise BadName(f"{value!r} is not a {kind}")


def read(extension_value: x509.SubjectAlternativeName | None) -> AltNames:
    """The names in an extension; drops those of unsupported types (e.g. a directory name)."""
    if extension_value is None:
        return NO_NAMES
    values = extension_value.get_values_for_type
    return AltNames(
        dns_names=tuple(values(x509.DNSName)),
        ip_addresses=tuple(canonical_ip(str(address)) for address in values(x509.IPAddress)),
        uris=tuple(values(x509.UniformResourceIdentifier)),
        email_addresses=tuple(values(x509.RFC822Name)),
        other_names=tuple(map(_read_other_name, values(x509.OtherName))),
    )


def constraints_extension(constraints: NameConstraints) -> x509.NameConstraints:
    """The name constraints extension. Raises `BadName`, also for empty constraints."""
    permitted, excluded = _subtrees(constraints.permitted), _subtrees(constraints.excluded)
    # RFC 5280 §4.2.1.10: "Conforming CAs MUST NOT issue certificates where name constraints is an empty
    # sequence."
    if not permitted and not excluded:
        raise BadName("the name constraints neither permit nor exclude anything")
    with border(BadName, "the name constraints cannot be encoded", detail=True):
        return x509.NameConstraints(permitted or None, excluded or None)


def canonical_constraints(constraints: NameConstraints | None) -> NameConstraints | None:
    """The constraints as they are read from a certificate that was made with them: ranges of addresses
    without host bits, domains as A-labels. Those that cannot be encoded are unchanged."""
    if constraints is None:
        return None
    try:
        return read_constraints(constraints_extension(constraints), critical=constraints.critical)
    except BadName:
        return constraints


def _subtrees(names: NameSet | None) -> list[x509.GeneralName]:
    if names is None:
        return []
    for domain in names.dns_domains:
        if "*" in domain:
            raise BadName(
                f"{domain!r} has a *, and a name in a constraint means all names below it already; write "
                f"{domain.removeprefix('*.')!r}"
            )
    entries: list[x509.GeneralName] = [x509.DNSName(ascii_dns_name(domain)) for domain in names.dns_domains]
    entries += [x509.IPAddress(_network(text)) for text in names.ip_ranges]
    entries += [_ascii(x509.RFC822Name, text, "an email address or domain") for text in names.email_addresses]
    entries += [_ascii(x509.UniformResourceIdentifier, text, "a domain") for text in names.uri_domains]
    return entries


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise BadName(f"{text!r} is not a range of IP addresses such as 10.0.0.0/8") from None


def read_constraints(value: x509.NameConstraints | None, *, critical: bool) -> NameConstraints | None:
    """Parse a name constraints extension; None without one."""
    if value is None:
        return None
    return NameConstraints(
        critical=critical,
        permitted=_read_subtrees(value.permitted_subtrees),
        excluded=_read_subtrees(value.excluded_subtrees),
    )


def _read_subtrees(names: Iterable[x509.GeneralName] | None) -> NameSet | None:
    if names is None:
        return None
    entries = list(names)
    return NameSet(
        dns_domains=tuple(name.value for name in entries if isinstance(name, x509.DNSName)),
        ip_ranges=tuple(str(name.value) for name in entries if isinstance(name, x509.IPAddress)),
        email_addresses=tuple(name.value for name in entries if isinstance(name, x509.RFC822Name)),
        uri_domains=tuple(name.value for name in entries if isinstance(name, x509.UniformResourceIdentifier)),
    )
