"""The operator's permissions for Deliveries (root directories, hooks, addresses to check), and the reasons
why a Delivery is refused."""

from __future__ import annotations

import grp
import pwd
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from certwright.kit.hooks import DEFAULT_TIMEOUT_S
from certwright.resources import delivery as delivery_rules
from certwright.resources.delivery import HAVE_KEY, Delivery, DeliveryOutput

ROOT_FLAG: Final = "--delivery-root"
HOOK_FLAG: Final = "--hook"
CHECK_FLAG: Final = "--deployed-check-allow"
HAPROXY: Final = "haproxy:"
"""The beginning of a hook that is not a command but the path of HAProxy's runtime socket."""


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A directory, and the choices of Deliveries below it. Empty `owners` and `groups`: none; empty `modes`:
    modes of read and write bits only; empty `namespaces`: all."""

    directory: str
    owners: Sequence[str] = ()
    groups: Sequence[str] = ()
    modes: Sequence[str] = ()
    namespaces: Sequence[str] = ()

    def is_for(self, namespace: str) -> bool:
        """Whether Deliveries of that namespace may write below the root."""
        return not self.namespaces or namespace in self.namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    """Roots and hooks by name, and patterns of allowed `HOST:PORT`; empty by default. `host`: the name of the
    machine, under which its roots are announced."""

    roots: Mapping[str, Root] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict, repr=False)
    hook_timeout_s: float = DEFAULT_TIMEOUT_S
    checked: Sequence[str] = ()
    host: str = ""

    def may_check(self, host: str, port: int) -> bool:
        """Whether a pattern allows connections to that port; `*` stands for any characters of the host, or
        for every port."""
        for pattern in self.checked:
            hosts, _, ports = pattern.rpartition(":")
            if fnmatchcase(host.lower(), hosts.strip("[]").lower()) and ports in ("*", str(port)):
                return True
        return False


DELIVERED: Final = "Delivered"
"""The files contain the current certificate, and the hook has succeeded."""
INVALID: Final = "Invalid"
"""The spec, or a file made from the Secret, is invalid."""
NOT_ALLOWED: Final = "NotAllowed"
"""The operator's flags do not allow the root, owner, group, mode or hook."""
PATH_IN_USE: Final = "PathInUse"
"""Another Delivery writes to the same path."""
NOT_FOUND: Final = "NotFound"
"""The Certificate, its Secret or the Secret with the password does not exist."""
NOT_ISSUED: Final = "NotIssued"
"""The Secret has no certificate and key yet."""
WRITE_FAILED: Final = "WriteFailed"
"""The files cannot be written."""
HOOK_FAILED: Final = "HookFailed"
"""The hook failed; it is repeated."""
NO_PROCESS: Final = "NoProcess"
"""No running process offers the root."""
OUTDATED: Final = "Outdated"
"""A process offers the root, but has not delivered the certificate that the Secret has now."""


class Refused(Exception):
    """The object cannot be delivered until something changes; `message` is one sentence with the fix.
    `details` are for the log only: paths and a hook's output are the operator's."""

    def __init__(self, reason: str, message: str, details: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.details = details


_READ_AND_WRITE: Final = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
"""Modes that need no flag: the owner may write, the others at most read."""


def check(delivery: Delivery, root: Root, options: DeliveryOptions) -> None:
    """Raises `Refused` for anything that the rules or the operator forbid.

    The rules are checked here too, because another API server may not have checked them.
    """
    if errors := delivery_rules.validate_delivery(delivery):
        raise Refused(INVALID, "; ".join(f"{error.field}: {error.message}" for error in errors))
    spec, namespace = delivery.spec, delivery.metadata.namespace
    if not root.is_for(namespace):
        raise Refused(
            NOT_ALLOWED,
            f"spec.root: {spec.root} is not for namespace {namespace}; have certwright started with "
            f"{ROOT_FLAG} {spec.root}=DIR,namespaces=…+{namespace} (`deliveryRoot` in its configuration)",
        )
    for number, output in enumerate(spec.outputs):
        _check_output(output, f"spec.outputs[{number}]", spec.root, root)
    if spec.hook and spec.hook not in options.hooks:
        raise Refused(
            NOT_ALLOWED,
            f"spec.hook: {spec.hook!r} is not a hook of the operator; have certwright started with "
            f"{HOOK_FLAG} NAME='COMMAND' (`hook` in its configuration)",
        )


def user_id(name: str) -> int:
    """The number of the user. Raises `Refused`."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Refused(NOT_ALLOWED, f"owner: this machine has no user {name!r}") from None


def group_id(name: str) -> int:
    """The number of the group. Raises `Refused`."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise Refused(NOT_ALLOWED, f"group: this machine has no group {name!r}") from None


def _check_output(output: DeliveryOutput, path: str, name: str, root: Root) -> None:
    _check_listed(output.owner, root.owners, f"{path}.owner", f"{name}=DIR,owners=")
    _check_listed(output.group, root.groups, f"{path}.group", f"{name}=DIR,groups=")
    if not output.mode or output.mode in root.modes:
        return
    bits = int(output.mode, 8)
    others = stat.S_IROTH if output.format in HAVE_KEY else 0
    if root.modes or bits & ~_READ_AND_WRITE or bits & others:
        _check_listed(output.mode, root.modes, f"{path}.mode", f"{name}=DIR,modes=")


def _check_listed(value: str, allowed: Sequence[str], path: str, option: str) -> None:
    if value and value not in allowed:
        known = f" (allowed: {', '.join(allowed)})" if allowed else ""
        raise Refused(
            NOT_ALLOWED,
            f"{path}: the root does not allow {value!r}{known}; have certwright started with "
            f"{ROOT_FLAG} {option}{'+'.join([*allowed, value])} (`deliveryRoot` in its configuration)",
        )
