"""Addresses of name servers, as users write them."""

from __future__ import annotations

DNS_PORT = 53


def parse_server(text: str) -> tuple[str, int]:
    """Parse host and port of `host`, `host:port`, `v6` or `[v6]:port`; the default port is 53.

    Raises `ValueError` with a sentence.
    """
    plain = text.strip()
    if plain.startswith("["):
        host, _, tail = plain[1:].partition("]")
    elif plain.count(":") == 1:
        host, _, number = plain.partition(":")
        tail = f":{number}"
    else:
        host, tail = plain, ""
    port = tail.removeprefix(":") if tail else str(DNS_PORT)
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(f'"{text}" is not a name server; write it as 192.0.2.1:53 or [2001:db8::1]:53')
    return host, int(port)
