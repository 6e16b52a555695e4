"""The addresses of this machine's network interfaces.

Source: Linux, `proc(5)`: /proc/net/fib_trie and /proc/net/if_inet6, which a sandbox without netlink sockets
can read too. Elsewhere, and where these files are missing, the addresses of the host name.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from pathlib import Path

_IPV4, _IPV6 = Path("/proc/net/fib_trie"), Path("/proc/net/if_inet6")
_LOCAL_ADDRESS = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")
# include/uapi/linux/if_addr.h: addresses that change daily (RFC 8981), or are not usable.
_TEMPORARY, _DEPRECATED, _TENTATIVE, _FAILED = 0x01, 0x20, 0x40, 0x08
_MOST = 64


def own_addresses() -> tuple[str, ...]:
    """The addresses by which other machines may reach this one, in canonical form; 64 at most. Link-local and
    temporary addresses are left out."""
    addresses = [*_read_ipv4(_text(_IPV4)), *_read_ipv6(_text(_IPV6))] or _of_host_name()
    return tuple(dict.fromkeys(addresses))[:_MOST]


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""


def _read_ipv4(fib_trie: str) -> list[str]:
    return [text for text in _LOCAL_ADDRESS.findall(fib_trie) if _is_reachable(text)]


def _read_ipv6(if_inet6: str) -> list[str]:
    addresses = []
    for line in if_inet6.splitlines():
        address, _, _, _, flags, *_ = line.split()
        text = str(ipaddress.IPv6Address(bytes.fromhex(address)))
        if _is_reachable(text) and not int(flags, 16) & (_TEMPORARY | _DEPRECATED | _TENTATIVE | _FAILED):
            addresses.append(text)
    return addresses


def _of_host_name() -> list[str]:
    with suppress(OSError):
        records = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        return [text for record in records if _is_reachable(text := str(record[4][0]).partition("%")[0])]
    return []


def _is_reachable(text: str) -> bool:
    address = ipaddress.ip_address(text)
    return not (address.is_loopback or address.is_link_local or address.is_multicast)
