"""Rate-limit refusals of a CA: which limit they name, and until when.

Source: Let's Encrypt (Boulder) words its refusals "too many … (N) … in the last …, retry after …: see
https://letsencrypt.org/docs/rate-limits/#…"; the anchor names the limit.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from certwright.acme.ratelimits import published

_SIGNS: Final = (
    # The first match counts: the text for a set of names mentions certificates too.
    ("#new-certificates-per-exact-set", published.SET),
    ("exact set of", published.SET),
    ("duplicate certificate", published.SET),
    ("#new-certificates-per-registered-domain", published.DOMAIN),
    ("certificates already issued for", published.DOMAIN),
    ("registered domain", published.DOMAIN),
    ("#authorization-failures", published.FAILURES),
    ("failed authorizations", published.FAILURES),
    ("failed validations", published.FAILURES),
    ("#new-registrations", published.ACCOUNTS),
    ("too many registrations", published.ACCOUNTS),
    ("too many new registrations", published.ACCOUNTS),
    ("#new-orders-per-account", published.ORDERS),
    ("too many new orders", published.ORDERS),
)
_ISSUED_FOR = re.compile(r"certificates \([0-9]+\) already issued for")
_UNTIL = re.compile(r"retry after ([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}) ?(?:UTC|Z)")
_QUOTED = re.compile(r'"([^"\s]{1,255})"')


def limit_named(text: str) -> str | None:
    """The limit that the refusal names; None if it names none."""
    lowered = text.lower()
    for sign, limit in _SIGNS:
        if sign in lowered:
            return limit
    return published.DOMAIN if _ISSUED_FOR.search(lowered) else None


def until_named(text: str) -> datetime | None:
    """The moment until which the text requires a wait."""
    match = _UNTIL.search(text)
    if match is None:
        return None
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC)
    except ValueError:
        return None


def names_in(text: str) -> frozenset[str]:
    """The quoted strings: the domain or name that the refusal is about."""
    return frozenset(quoted.lower().rstrip(".") for quoted in _QUOTED.findall(text))
