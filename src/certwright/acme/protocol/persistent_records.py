"""The TXT record of dns-persist-01: it authorizes one account of one CA for a domain, until it is removed.

Source: draft-ietf-acme-dns-persist-01 §4 (as Pebble 2.10 and Boulder implement it); RFC 8659 §4.2 (syntax);
RFC 8657 §3 (`accounturi`).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

_WHITESPACE = " \t"


class PersistentRecord(msgspec.Struct, frozen=True):
    """What a record must authorize: the account with this URL at the CA that calls itself by one of `issuers`
    (the `caaIdentities` of its directory); empty: any CA."""

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
