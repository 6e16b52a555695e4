"""What the operator allows Deliveries, from flags: root directories, hooks, and addresses that are
checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from certwright.kit.hooks import DEFAULT_TIMEOUT_S

ROOT_FLAG: Final = "--delivery-root"
HOOK_FLAG: Final = "--hook"
CHECK_FLAG: Final = "--deployed-check-allow"
HAPROXY: Final = "haproxy:"
"""The beginning of a hook that is not a command but the path of HAProxy's runtime socket."""


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A directory, and what Deliveries below it may choose. Empty `owners` and `groups`: none; empty `modes`:
    those without bits other than read and write; empty `namespaces`: all."""

    directory: str
    owners: Sequence[str] = ()
    groups: Sequence[str] = ()
    modes: Sequence[str] = ()
    namespaces: Sequence[str] = ()

    def is_for(self, namespace: str) -> bool:
        """Whether Deliveries of that namespace may write below it."""
        return not self.namespaces or namespace in self.namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """Roots and hooks by name, and patterns of `HOST:PORT` that may be connected to. Nothing by default."""

    roots: Mapping[str, Root] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict, repr=False)
    hook_timeout_s: float = DEFAULT_TIMEOUT_S
    checked: Sequence[str] = ()

    def may_check(self, host: str, port: int) -> bool:
        """Whether a pattern allows connections to that port; `*` stands for any characters of the host, or
        for every port."""
        for pattern in self.checked:
            hosts, _, ports = pattern.rpartition(":")
            if fnmatchcase(host.lower(), hosts.strip("[]").lower()) and ports in ("*", str(port)):
                return True
        return False
