"""What a CA's refusal says of its limits.

Source: Let's Encrypt (Boulder) words its refusals "too many … (N) … in the last …, retry after …: see
https://letsencrypt.org/docs/rate-limits/#…"; the anchor names the limit.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from certwright.acme.limits import known

_SIGNS: Final = (
    # The first that is found counts: what is told of a set mentions certificates too.
    ("#new-certificates-per-exact-set", known.SET),
    ("exact set of", known.SET),
    ("duplicate certificate", known.SET),
    ("#new-certificates-per-registered-domain", known.DOMAIN),
    ("certificates already issued for", known.DOMAIN),
    ("registered domain", known.DOMAIN),
    ("#authorization-failures", known.FAILURES),
    ("failed authorizations", known.FAILURES),
    ("failed validations", known.FAILURES),
    ("#new-registrations", known.ACCOUNTS),
    ("too many registrations", known.ACCOUNTS),
    ("too many new registrations", known.ACCOUNTS),
    ("#new-orders-per-account", known.ORDERS),
    ("too many new orders", known.ORDERS),
)
_ISSUED_FOR = re.compile(r"certificates \([0-9]+\) already issued for")
_UNTIL = re.compile(r"retry after ([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}) ?(?:UTC|Z)")
_QUOTED = re.compile(r'"([^"\s]{1,255})"')


def limit_named(text: str) -> str | None:
    """Which limit the refusal is about; None where it does not say."""
    lowered = text.lower()
    for sign, limit in _SIGNS:
        if sign in lowered:
            return limit
    return known.DOMAIN if _ISSUED_FOR.search(lowered) else None


def until_named(text: str) -> datetime | None:
    """The moment until which the text asks to wait."""
    found = _UNTIL.search(text)
    if found is None:
        return None
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]}").replace(tzinfo=UTC)
    except ValueError:
        return None


def names_in(text: str) -> frozenset[str]:
    """What stands in quotes: the domain or the name that is meant."""
    return frozenset(found.lower().rstrip(".") for found in _QUOTED.findall(text))
