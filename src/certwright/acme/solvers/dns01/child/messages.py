"""The request to a child and its answer, one JSON document each; the contract of a provider."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """The provider that the child loads, with its settings.

    lexicon: `options` are the object's, with those of its Secret and the operator's; `servers` are URLs or
    hosts that the operator has named.
    plugin: `config` is any JSON, `secrets` are entries of Secrets.
    """

    kind: Literal["lexicon", "plugin"]
    name: str
    options: dict[str, str] = {}
    servers: tuple[str, ...] = ()
    config: object = None
    secrets: dict[str, bytes] = {}


class Change(msgspec.Struct, frozen=True):
    """Add a TXT value to `name` (no final dot), or remove it."""

    name: str
    value: str
    adds: bool


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """`provider` is a `Provider` as JSON. `zone` is the one to find or to change. The child ends itself
    after `seconds`, because its parent may have been killed."""

    provider: msgspec.Raw
    action: Literal["verify", "find_zone", "apply"]
    zone: str = ""
    changes: tuple[Change, ...] = ()
    seconds: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`found` answers find_zone. `reason` is a clause; empty: success. `rejected`: the API does not accept
    the credentials. `retry_after`: the API asks for a pause, as in that header of HTTP."""

    found: bool = True
    reason: str = ""
    rejected: bool = False
    retry_after: str = ""


class ProviderContract(Protocol):
    """A provider with its credentials; all methods are synchronous. Names have no final dot."""

    def verify(self) -> None:
        """Check the settings, without a request."""

    def has_zone(self, name: str) -> bool:
        """Whether the account has the zone of exactly this name."""

    def add(self, zone: str, name: str, value: str) -> None:
        """Add one TXT value; a success if it exists already."""

    def remove(self, zone: str, name: str, value: str) -> None:
        """Remove one TXT value; a success if it does not exist."""


class Failed(Exception):
    """The provider cannot do it; the text is a clause with the reason and the fix."""


class Rejected(Failed):
    """The API does not accept the credentials."""


class Busy(Failed):
    """The API asks for a pause, as in the header `Retry-After`."""

    def __init__(self, reason: str, retry_after: str) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
