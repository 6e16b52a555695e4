"""How flags of long-running commands are declared, and how their values are written.

A flag is declared once, with its parser: a function of the value as given that raises `click.BadParameter`.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from certwright.cli.options import TRUTH, Decorator
from certwright.kube.util.durations import parse_duration
from certwright.kube.util.encoding import is_ip_address

T = TypeVar("T")
Address = tuple[str, int]
Words = tuple[str, ...]

DEFAULT_LISTEN: Final = ("127.0.0.1", 8443)
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - only if the user asks for it
# RFC 1123 §2.1; a wildcard as the leftmost label (RFC 6125 §6.4.3).
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DNS_NAME: Final = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")


def flag(
    *names: str,
    text: str,
    metavar: str | None = None,
    default: Any = None,
    parse: Callable[[Any], Any] | None = None,
    **settings: Any,
) -> Decorator:
    """A flag whose help is `text` and shows the default. `names`: the flag and, if it differs, the
    parameter."""
    if parse is not None:
        settings["callback"] = lambda _context, _option, value: parse(value)
    if default is not None:
        # Not None: click takes it for the value of a flag that is not given, instead of false.
        settings["default"] = default
        if not settings.get("multiple"):
            settings["show_default"] = default != ""
    return click.option(*names, metavar=metavar, help=text, **settings)


def repeated(*names: str, text: str, metavar: str, parse: Callable[[Any], Any], **settings: Any) -> Decorator:
    """A flag that may be given several times; `parse` gets all its values."""
    return flag(*names, text=text, metavar=metavar, parse=parse, multiple=True, **settings)


def words(*names: str, text: str, metavar: str = "NAME,…", default: Words = ()) -> Decorator:
    """A list: the flag may be repeated, and each value may contain several words with commas between."""
    return repeated(*names, text=text, metavar=metavar, parse=split_words, default=default)


def switch(*names: str, text: str, default: bool) -> Decorator:
    """A flag that is true or false; as Go's flags, without a value it means true."""
    shown = f"{text}  [default: {str(default).lower()}]"
    return click.option(
        *names, metavar="BOOL", type=TRUTH, default=default, is_flag=False, flag_value=True, help=shown
    )


def duration(
    *names: str, text: str, default: str, parse: Callable[[str], timedelta] | None = None
) -> Decorator:
    """A duration such as `90s` or `1h30m`."""
    return flag(*names, text=text, metavar="DURATION", default=default, parse=parse or parse_period)


def number(*names: str, text: str, default: int, at_least: int = 1, metavar: str = "N") -> Decorator:
    """A number, `at_least` or more."""
    kind = click.IntRange(min=at_least)
    return flag(*names, text=text, metavar=metavar, type=kind, default=default)


def file(*names: str, text: str, **settings: Any) -> Decorator:
    """The path of a file."""
    kind = click.Path(path_type=Path, dir_okay=False)
    return flag(*names, text=text, metavar="FILE", type=kind, **settings)


def split_words(values: Words) -> Words:
    """The words of a list, without white space around them."""
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())


def parse_period(value: str) -> timedelta:
    """A duration that is not negative."""
    try:
        duration = parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if duration < timedelta(0):
        raise click.BadParameter(f"{value!r} cannot be negative")
    return duration


def parse_address(value: str | None) -> Address | None:
    """`HOST:PORT`, `[IPV6]:PORT` or `:PORT`, which is every address of this machine; its host is then
    empty."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise click.BadParameter(f"`{value}` is not HOST:PORT, e.g. :80 or 127.0.0.1:8443")
    if int(port) > 65535:
        raise click.BadParameter(f"`{value}`: port {port} is too large (65535 at most)")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise click.BadParameter(f"`{value}`: write an IPv6 address in brackets, e.g. [::1]:8443")
    return host.strip("[]"), int(port)


def parse_names(values: Words) -> Words:
    """DNS names and IP addresses, as `split_words`."""
    names = split_words(values)
    for name in names:
        if not is_ip_address(name) and (len(name) > 253 or not _DNS_NAME.fullmatch(name)):
            raise click.BadParameter(
                f"`{name}` is neither a DNS name nor an IP address; write e.g. pki.example.com or 192.0.2.1"
            )
    return names


def listen_flag(default: str) -> Decorator:
    """Add `--listen` as `listen: Address | None`; `default` is the text of the help."""

    def read(value: str | None) -> Address | None:
        address = parse_address(value)
        return None if address is None else (address[0] or ANY_ADDRESS, address[1])

    return flag(
        "--listen",
        metavar="HOST:PORT",
        parse=read,
        text="Where to listen, with TLS; :PORT is every address of this machine, and port 0 picks a free "
        f"one.  [default: {default}]",
    )


def is_free(host: str, port: int) -> bool:
    """Whether the port is free now. Another process may take it a moment later."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do, so that lingering connections of the last run do not interfere.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True
