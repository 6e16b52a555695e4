"""The request to a child, and its answer: one JSON document each."""

from __future__ import annotations

from typing import Literal

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
    """Add one TXT value to those of `name` (no final dot), or remove it."""

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
