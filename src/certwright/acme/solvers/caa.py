"""CAA records (RFC 8659): may a CA issue for a name, as far as the DNS says so now?

A CA checks this itself, and has the last word. Here it only decides which of several CAs gets a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple

CRITICAL: Final = 128
"""RFC 8659 §4.1: the flag "Issuer Critical"."""

_KNOWN: Final = frozenset(
    {"issue", "issuewild", "iodef", "contactemail", "contactphone", "issuemail", "issuevmc"}
)
"""The registered property tags. An issuer "MUST NOT issue" where a critical one is unknown to it (§4.1)."""


class Record(NamedTuple):
    """One CAA record."""

    flags: int
    tag: str
    value: str


class Authorized(NamedTuple):
    """The CA that an `issue` or `issuewild` property authorizes (empty: none), with its parameters."""

    issuer: str
    parameters: dict[str, str]


RecordsOf = Callable[[str], Awaitable[Sequence[Record]]]
"""The CAA records of one name, aliases followed; raises what a failed lookup raises."""


async def relevant_records(name: str, records_of: RecordsOf) -> Sequence[Record]:
    """The relevant resource record set (§3): of the name, or of the nearest parent name with one. `name` has
    no wildcard label."""
    labels = name.rstrip(".").split(".")
    for start in range(len(labels)):
        if records := await records_of(".".join(labels[start:])):
            return records
    return ()


def forbids(
    records: Sequence[Record], identities: Collection[str], *, is_wildcard: bool, account: str = ""
) -> bool:
    """Whether the relevant records forbid a CA with those `identities` (RFC 8555 §9.7.6, caaIdentities) to
    issue. `account` is the URL of the account there; empty: unknown."""
    if not identities:
        return False
    if any(record.flags & CRITICAL and record.tag.lower() not in _KNOWN for record in records):
        return True
    issue, wild = (
        [record.value for record in records if record.tag.lower() == tag] for tag in ("issue", "issuewild")
    )
    # §4.3: issuewild has precedence for wildcard names, and counts for no others.
    applicable = wild if is_wildcard and wild else issue
    if not applicable:
        return False
    known = {identity.lower().rstrip(".") for identity in identities}
    return not any(_authorizes(parse(value), known, account) for value in applicable)


def parse(value: str) -> Authorized:
    """An issue-value (§4.2). A malformed one authorizes no CA."""
    issuer, *parts = (part.strip(" \t") for part in value.split(";"))
    parameters = {}
    for part in parts if any(parts) else ():
        tag, equals, text = part.partition("=")
        if not equals or not tag.strip():
            return Authorized("", {})
        parameters[tag.strip().lower()] = text.strip()
    return Authorized(issuer.lower().rstrip("."), parameters)


def _authorizes(authorized: Authorized, identities: Collection[str], account: str) -> bool:
    # RFC 8657 §3: with `accounturi` only that account is authorized.
    bound_to = authorized.parameters.get("accounturi", "")
    return authorized.issuer in identities and (not bound_to or not account or bound_to == account)
