"""Addresses to listen on, and the names that clients reach the server by."""

from __future__ import annotations

import errno
import re
import socket

import click

from certwright.cli.options import Decorator
from certwright.kube.util.encoding import is_ip_address

Address = tuple[str, int]

DEFAULT_LISTEN = ("127.0.0.1", 8443)
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - only if the user asks for it
# RFC 1123 §2.1; a wildcard as the leftmost label (RFC 6125 §6.4.3).
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DNS_NAME = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")


def parse_address(_context: click.Context, _option: click.Parameter, value: str | None) -> Address | None:
    """Parse `HOST:PORT`, `[IPV6]:PORT` or `:PORT`, which is every address of this machine; its host is then
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


def listen_option(default: str) -> Decorator:
    """Add `--listen` as `listen: Address | None`; `default` is the text of the help."""

    def parse(context: click.Context, option: click.Parameter, value: str | None) -> Address | None:
        address = parse_address(context, option, value)
        return None if address is None else (address[0] or ANY_ADDRESS, address[1])

    return click.option(
        "--listen",
        metavar="HOST:PORT",
        callback=parse,
        help="Where to listen, with TLS; :PORT is every address of this machine, and port 0 picks a free "
        f"one.  [default: {default}]",
    )


def parse_names(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    names = tuple(name.strip() for value in values for name in value.split(",") if name.strip())
    for name in names:
        if not is_ip_address(name) and (len(name) > 253 or not _DNS_NAME.fullmatch(name)):
            raise click.BadParameter(
                f"`{name}` is neither a DNS name nor an IP address; write e.g. pki.example.com or 192.0.2.1"
            )
    return names


TLS_SAN = click.option(
    "--tls-san",
    "tls_sans",
    metavar="NAME|IP",
    multiple=True,
    callback=parse_names,
    help="A further name or address of the server's certificate, by which other machines reach it; may be "
    "repeated.",
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
