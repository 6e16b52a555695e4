"""Requests to a rate-limit ledger, and its decisions."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from certwright.kit.rate_limit import micros


class Asking(msgspec.Struct, frozen=True):
    """An order that requests admission. `uid` is unique for ever; the older order goes first.

    `replaces`: the order names the certificate that it replaces (RFC 9773 §5). `renewal`: the CA has
    recently issued a certificate for exactly these names.
    """

    uid: str
    account: str
    identifiers: tuple[str, ...]
    since: datetime
    replaces: bool = False
    renewal: bool = False

    @property
    def place(self) -> tuple[int, str]:
        """The sort key of its place in a queue."""
        return micros(self.since), self.uid


class Admit(msgspec.Struct, frozen=True):
    """The order may be placed now; its capacity is reserved from now on."""


class WaitUntil(msgspec.Struct, frozen=True):
    """The order must wait until `moment`, an estimate. The sentence names the limit and the moment."""

    moment: datetime
    sentence: str


ADMIT: Final = Admit()


class Key(NamedTuple):
    """One bucket: the limit and its scope (account, domain, names)."""

    limit: str
    whose: str

    def __str__(self) -> str:
        return f"{self.limit}/{self.whose}"

    @classmethod
    def read(cls, text: str) -> Key:
        """Parse a serialized key."""
        limit, _, whose = text.partition("/")
        return cls(limit, whose)
