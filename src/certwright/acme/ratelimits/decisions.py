"""Who asks, and the words that a ledger answers with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from certwright.kit.rate_limit import micros


@dataclass(frozen=True, slots=True)
class Asking:
    """An order that wants to be made. `uid` is its own for ever; the older goes first.

    `replaces`: it names the certificate that it replaces (RFC 9773 §5). `renewal`: the CA has issued a
    certificate for just these names lately.
    """

    uid: str
    account: str
    identifiers: tuple[str, ...]
    since: datetime
    replaces: bool = False
    renewal: bool = False

    @property
    def place(self) -> tuple[int, str]:
        """What its place in a line goes by."""
        return micros(self.since), self.uid


@dataclass(frozen=True, slots=True)
class Admit:
    """The order may be made now; it is held from now on."""


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Not before `moment`, as far as is known now. The sentence names the limit and the moment."""

    moment: datetime
    sentence: str


ADMIT: Final = Admit()


class Key(NamedTuple):
    """One bucket: which limit, and whose."""

    limit: str
    whose: str

    def __str__(self) -> str:
        return f"{self.limit}/{self.whose}"

    @classmethod
    def read(cls, text: str) -> Key:
        """The key that was written so."""
        limit, _, whose = text.partition("/")
        return cls(limit, whose)
