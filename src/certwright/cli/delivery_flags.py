"""The flags for Deliveries: the operator's root directories, hooks, and addresses that are checked.

An object refers to their names only; see `docs/delivery.md`.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import click

from certwright.cli import lazy
from certwright.cli.errors import Failed
from certwright.cli.flags import repeated, seconds, split_words
from certwright.kit import versioned_files

if TYPE_CHECKING:
    from certwright.app import Root

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_reserved: Final = set[tuple[int, int]]()
"""Device and inode of the roots of this process."""
_LISTS: Final = ("owners", "groups", "modes", "namespaces")
_MODE: Final = re.compile(r"0[0-7]{3}")
_PATTERN: Final = re.compile(r"\S+:(\*|[0-9]{1,5})")


def parse_roots(values: tuple[str, ...]) -> dict[str, Root]:
    """Parse `NAME=DIR[,owners=A+B][,groups=…][,modes=…][,namespaces=…]`."""
    roots: dict[str, Root] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        directory, *settings = rest.split(",")
        if not equals or not _NAME.fullmatch(name) or name in roots:
            raise click.BadParameter(
                f"`{value}`: write NAME=DIR, and each name once, e.g. nginx=/etc/nginx/tls"
            )
        if not Path(directory).is_dir():
            raise click.BadParameter(f"`{value}`: {directory or 'DIR'} is not a directory; create it first")
        roots[name] = lazy.app.Root(directory=str(Path(directory).absolute()), **_lists(value, settings))
    return roots


def _lists(value: str, settings: list[str]) -> dict[str, tuple[str, ...]]:
    lists: dict[str, tuple[str, ...]] = {}
    for setting in settings:
        key, _, items = setting.partition("=")
        if key not in _LISTS or not items:
            raise click.BadParameter(f"`{value}`: after DIR write owners=, groups=, modes= or namespaces=A+B")
        lists[key] = tuple(items.split("+"))
    if wrong := [mode for mode in lists.get("modes", ()) if not _MODE.fullmatch(mode)]:
        raise click.BadParameter(f"`{value}`: {wrong[0]} is not a mode such as 0640")
    return lists


def parse_hooks(values: tuple[str, ...]) -> dict[str, str]:
    """Parse `NAME=COMMAND`, or `NAME=haproxy:SOCKET`."""
    hooks: dict[str, str] = {}
    for value in values:
        name, equals, command = value.partition("=")
        if not equals or not _NAME.fullmatch(name) or not command.strip() or name in hooks:
            raise click.BadParameter(
                f"`{value}`: write NAME='COMMAND', and each name once, e.g. nginx='systemctl reload nginx'"
            )
        hooks[name] = command
    return hooks


def parse_patterns(values: tuple[str, ...]) -> tuple[str, ...]:
    """Parse patterns of `HOST:PORT` with commas between; `*` stands for any characters of the host, or any
    port."""
    patterns = split_words(values)
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise click.BadParameter(f"`{pattern}`: write HOST:PORT, e.g. *.example.com:443 or localhost:*")
    return patterns


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFlags:
    """What the operator allows Deliveries."""

    SECTION: ClassVar = "Deliveries"

    delivery_roots: Mapping[str, Root] = repeated(
        "--delivery-root",
        "Let Deliveries of root NAME write below DIR, as these users and groups, with these modes, "
        "from these namespaces; may be repeated.",
        metavar="NAME=DIR[,owners=A+B][,groups=…][,modes=…][,namespaces=…]",
        parse=parse_roots,
        reloads=True,
        often=True,
    )
    hooks: Mapping[str, str] = repeated(
        "--hook",
        "Let Deliveries run COMMAND by /bin/sh after their files were replaced, or replace the "
        "certificate in a running HAProxy by NAME=haproxy:SOCKET; may be repeated.",
        metavar="NAME='COMMAND'",
        parse=parse_hooks,
        reloads=True,
        often=True,
    )
    hook_timeout_s: float = seconds(
        "--hook-timeout",
        "How long a hook may take before it is killed.",
        default="60s",
        reloads=True,
    )
    checked: tuple[str, ...] = repeated(
        "--deployed-check-allow",
        "Addresses that Deliveries may have checked, with * for any part of the host or any port.",
        metavar="HOST:PORT,…",
        parse=parse_patterns,
        reloads=True,
        often=True,
    )

    @property
    def settings(self) -> lazy.app.DeliveryOptions:
        """The settings. Raises `click.UsageError`."""
        if not self.delivery_roots and (self.hooks or self.checked):
            raise click.UsageError("--hook and --deployed-check-allow need --delivery-root NAME=DIR")
        return lazy.app.DeliveryOptions(
            roots=self.delivery_roots,
            hooks=self.hooks,
            hook_timeout_s=self.hook_timeout_s,
            checked=self.checked,
            host=socket.gethostname(),
        )

    def reserve(self) -> None:
        """Reserve the roots for this process until it ends, unless they are. Raises `Failed`: two
        processes would replace each other's files for ever."""
        of_place = {os.path.realpath(root.directory): name for name, root in self.delivery_roots.items()}
        for place, name in of_place.items():
            status = os.stat(place)
            if (which := (status.st_dev, status.st_ino)) in _reserved:
                continue
            try:
                versioned_files.reserve(place)
                _reserved.add(which)
            except BlockingIOError:
                raise Failed(
                    f"--delivery-root {name}={self.delivery_roots[name].directory}: another certwright "
                    "delivers to that directory; stop it, or name another directory"
                ) from None
