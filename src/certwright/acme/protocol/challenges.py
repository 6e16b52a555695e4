"""Challenge responses: the value of each challenge type, and its place; the record of dns-persist-01, which
authorizes one account of one CA for a domain until it is removed.

Source: RFC 8555 §8 (http-01, dns-01), RFC 8737 (tls-alpn-01), RFC 8738 (IP addresses),
draft-ietf-acme-dns-account-label (dns-account-01), draft-ietf-acme-dns-persist-01 §4 (dns-persist-01, as
Pebble 2.10 and Boulder implement it); RFC 8659 §4.2 (its syntax), RFC 8657 §3 (`accounturi`).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec

from certwright.acme.protocol.jws import AccountKey
from certwright.kube.util.encoding import base64url

HTTP_01: Final = "http-01"
DNS_01: Final = "dns-01"
TLS_ALPN_01: Final = "tls-alpn-01"
DNS_ACCOUNT_01: Final = "dns-account-01"
DNS_PERSIST_01: Final = "dns-persist-01"

WELL_KNOWN: Final = "/.well-known/acme-challenge/"
"""The path prefix of http-01, followed by the token (RFC 8555 §8.3)."""
ALPN_PROTOCOL: Final = "acme-tls/1"
"""RFC 8737 §6.2."""
ACME_IDENTIFIER_OID: Final = "1.3.6.1.5.5.7.1.31"
"""The certificate extension id-pe-acmeIdentifier (RFC 8737 §3)."""
_WHITESPACE = " \t"


def key_authorization(token: str, key: AccountKey) -> str:
    """ "A string that concatenates the token for the challenge with a key fingerprint" (RFC 8555 §8.1)."""
    return f"{token}.{key.thumbprint}"


def dns_value(authorization: str) -> str:
    """The TXT value of dns-01 and dns-account-01 (RFC 8555 §8.4)."""
    return base64url(hashlib.sha256(authorization.encode()).digest())


def shown_value(kind: str, token: str, key: AccountKey) -> str:
    """The value that a solver presents: the key authorization, or the TXT value of dns-01 and dns-account-01.
    Empty for dns-persist-01, which presents nothing."""
    if kind == DNS_PERSIST_01:
        return ""
    authorization = key_authorization(token, key)
    return dns_value(authorization) if kind in (DNS_01, DNS_ACCOUNT_01) else authorization


def dns_name(identifier: str) -> str:
    """The name of the TXT record of dns-01, without a final dot; `identifier` is without `*.`."""
    return f"_acme-challenge.{identifier}"


def dns_account_name(identifier: str, account_url: str) -> str:
    """The name of the TXT record of dns-account-01, with a label per account."""
    digest = hashlib.sha256(account_url.encode()).digest()[:10]
    label = base64.b32encode(digest).decode().lower()
    return f"_{label}._acme-challenge.{identifier}"


def dns_persist_name(identifier: str) -> str:
    """The name of the TXT record of dns-persist-01, which is permanent."""
    return f"_validation-persist.{identifier}"


def tls_digest(authorization: str) -> bytes:
    """The 32 bytes in the acmeIdentifier extension (RFC 8737 §3)."""
    return hashlib.sha256(authorization.encode()).digest()


def server_name(identifier: str) -> str:
    """The server name that tls-alpn-01 asks for: an address asks by its reverse name (RFC 8738 §6)."""
    try:
        return ipaddress.ip_address(identifier).reverse_pointer
    except ValueError:
        return identifier


class PersistentRecord(msgspec.Struct, frozen=True):
    """The authorization that a record must contain: the account with this URL at the CA with one of the names
    `issuers` (the `caaIdentities` of its directory); empty: any CA."""

    issuers: tuple[str, ...]
    account: str

    def value(self, *, wildcard: bool) -> str:
        """The value of the record to create; `wildcard` authorizes the wildcard name as well."""
        value = f"{self.issuers[0] if self.issuers else 'DOMAIN-OF-THE-CA'}; accounturi={self.account}"
        return f"{value}; policy=wildcard" if wildcard else value

    def is_authorized_by(self, values: Collection[str], *, wildcard: bool, now: datetime) -> bool:
        """Whether one of these TXT values authorizes the account."""
        return any(self._authorizes(value, wildcard=wildcard, now=now) for value in values)

    def _authorizes(self, value: str, *, wildcard: bool, now: datetime) -> bool:
        issuer, *parts = (part.strip(_WHITESPACE) for part in value.split(";"))
        if self.issuers and issuer.lower() not in self.issuers:
            return False
        pairs = [part.partition("=") for part in parts]
        parameters = {tag.strip(_WHITESPACE).lower(): text.strip(_WHITESPACE) for tag, _, text in pairs}
        if parameters.get("accounturi") != self.account:
            return False
        # "The policy parameter key and its defined values MUST be treated as case-insensitive."
        if wildcard and parameters.get("policy", "").lower() != "wildcard":
            return False
        until = parameters.get("persistuntil")
        return until is None or (until.isdecimal() and now.timestamp() <= int(until))
