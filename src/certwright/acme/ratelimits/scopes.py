"""Scopes of rate limits: registered domains, sets of names, names.

Source: Let's Encrypt, "Rate Limits": an IPv4 address and an IPv6 /64 count as registered domains.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # 4 MB and 80 ms, needed only with limits

    return PublicSuffixList()


@lru_cache(maxsize=4096)
def registered_domain(identifier: str) -> str:
    """The domain that a name or an address counts for, in lower case: `*.www.example.co.uk` counts for
    `example.co.uk`.

    A public suffix counts as itself.
    """
    name = identifier.lower().removeprefix("*.").rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return _suffixes().privatesuffix(name) or name
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def registered_domains(identifiers: Iterable[str]) -> tuple[str, ...]:
    """The distinct registered domains, sorted."""
    return tuple(sorted({registered_domain(identifier) for identifier in identifiers}))


def set_of(identifiers: Iterable[str]) -> str:
    """The key of exactly this set of names, whatever their order and case: the name of a single one, else
    one of them and a digest of all."""
    names = sorted({identifier.lower().rstrip(".") for identifier in identifiers})
    if len(names) == 1:
        return names[0]
    digest = hashlib.sha256(",".join(names).encode()).hexdigest()[:16]
    return f"{names[0] if names else ''} +{len(names) - 1} {digest}"
