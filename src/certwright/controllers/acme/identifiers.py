"""Identifiers in their canonical form for comparisons: DNS names as DNS compares them (RFC 4343), addresses
as addresses.

Stored and sent identifiers keep the form that the user chose.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from certwright.pki import sans
from certwright.pki.certificates import Identity
from certwright.pki.errors import BadName
from certwright.resources.acme import ACMEAuthorization, OrderSpec


class Name(NamedTuple):
    """A canonical identifier; `kind` is `dns` or `ip`, as in RFC 8555 §9.7.7 and RFC 8738 §3."""

    kind: str
    value: str


def canonical(kind: str, value: str) -> Name:
    """An identifier of an ACME server."""
    if kind != "ip":
        return Name(kind, sans.canonical_dns_name(value))
    try:
        return Name(kind, sans.canonical_ip(value))
    except BadName:
        return Name(kind, value.lower())


def names_of(dns_names: Iterable[str], ip_addresses: Iterable[str], common_name: str = "") -> frozenset[Name]:
    """Names and addresses; the common name is one of the names unless it is an address."""
    names = {canonical("ip", address) for address in ip_addresses}
    names |= {canonical("dns", name) for name in dns_names}
    if common_name and canonical("ip", common_name) not in names:
        names.add(canonical("dns", common_name))
    return frozenset(names)


def names_of_spec(spec: OrderSpec) -> frozenset[Name]:
    """The identifiers of an Order."""
    return names_of(spec.dns_names, spec.ip_addresses, spec.common_name)


def names_of_identity(facts: Identity, *, with_common_name: bool = False) -> frozenset[Name]:
    """The identifiers of a signing request or a certificate."""
    return names_of(facts.dns_names, facts.ip_addresses, facts.common_name if with_common_name else "")


def is_ordered(authorization: ACMEAuthorization, ordered: frozenset[Name]) -> bool:
    """Whether the authorization is for one of the names."""
    value = f"*.{authorization.identifier}" if authorization.wildcard else authorization.identifier
    return canonical("dns", value) in ordered or canonical("ip", value) in ordered
