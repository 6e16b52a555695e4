"""Limits on the code of dns-lexicon in this process, whatever its options: an audit hook (PEP 578).

The options come from objects and Secrets of tenants; the code is trusted. `resources/lexicon.py` decides
which options an object may set. This second barrier is against options with an unknown effect, and against
credentials that a vendor's library finds by itself on the machine.

No file is written, only Python's and a few of the system's are read, no program runs, and connections go to
public addresses on port 443, to name servers, and to the hosts that the operator's options and proxies name.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

_PROGRAMS: Final = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
)
_CHANGES: Final = frozenset(
    {
        "os.chmod",
        "os.chown",
        "os.link",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.symlink",
        "os.truncate",
    }
)
_CONNECTIONS: Final = frozenset({"socket.connect", "socket.sendto"})
_READABLE: Final = (
    "/dev/null",
    "/dev/urandom",
    "/etc/gai.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/usr/share/zoneinfo",
)
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_HTTPS: Final = 443
_DNS: Final = 53


class Denied(PermissionError):
    """The process denied an action, which the text names in a clause."""


def confine(servers: Iterable[str]) -> None:
    """From now on, and for ever. `servers` are URLs or hosts, with or without a port; others are ignored."""
    proxies = (url for scheme, url in getproxies_environment().items() if scheme != "no")
    # Before the hook: host names are looked up.
    hosts = frozenset(_addresses((*servers, *proxies)))
    code = (sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path))
    readable = tuple(os.path.realpath(path) for path in (*_READABLE, *code))

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            _check_file(args, readable)
        elif event in _CONNECTIONS:
            _check_connection(args[1], hosts)
        elif event in _PROGRAMS:
            raise Denied("it tried to run a program, which is not allowed")
        elif event in _CHANGES:
            raise Denied("it tried to change a file, which is not allowed")

    sys.addaudithook(hook)


def denial(error: BaseException | None) -> Denied | None:
    """The denial that an error goes back to, if any."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Denied):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _check_file(args: tuple[object, ...], readable: tuple[str, ...]) -> None:
    path, _, flags = args
    if not isinstance(path, str | bytes | os.PathLike):
        return  # An open file.
    if isinstance(flags, int) and flags & _WRITES:
        raise Denied("it tried to write a file, which is not allowed")
    real = os.path.realpath(os.fsdecode(path))
    if not any(real == allowed or real.startswith(f"{allowed}{os.sep}") for allowed in readable):
        raise Denied("it tried to read a file of this machine, which is not allowed")


def _check_connection(address: object, hosts: frozenset[str]) -> None:
    if not isinstance(address, tuple) or len(address) < 2:
        raise Denied("it tried to connect to a local socket, which is not allowed")
    host, port = str(address[0]), address[1]
    if port == _DNS or host in hosts or (port == _HTTPS and _is_public(host)):
        return
    raise Denied(
        f"it tried to connect to a server that is neither at a public address, port {_HTTPS}, nor named by "
        "the operator (--dns01-lexicon-option)"
    )


def _is_public(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_global


def _addresses(servers: Iterable[str]) -> Iterator[str]:
    for server in servers:
        try:
            host = urlsplit(server if "://" in server else f"//{server}").hostname
            entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
        except (ValueError, OSError):
            continue  # Not a server: an operator's option may be anything.
        yield from (str(address[0]) for *_, address in entries)
