"""Challenge responses: the value that each challenge type presents, and where.

Source: RFC 8555 §8 (http-01, dns-01), RFC 8737 (tls-alpn-01), RFC 8738 (IP addresses),
draft-ietf-acme-dns-account-label (dns-account-01), draft-ietf-acme-dns-persist (dns-persist-01).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from typing import Final

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
