"""Addresses of name servers, as users write them. Apart from the lookups, because every start reads some: the
library for DNS takes 4 MB."""

from __future__ import annotations

from importlib.util import find_spec

from certwright.kit.outgoing import HTTPS_ONLY, NotAllowed

DNS_PORT = 53
_HTTPS = "https://"


def is_over_https(text: str) -> bool:
    """Whether the text is meant as the URL of a server of DNS over HTTPS."""
    return text.strip().lower().startswith(_HTTPS)


def check_recursive_server(text: str) -> None:
    """Check a name server of the operator's: see `parse_server`, or a URL of DNS over HTTPS. Raises
    `ValueError` with a sentence."""
    if not is_over_https(text):
        parse_server(text)
        return
    if not text.isascii():
        raise ValueError(f'"{text}" is not a usable URL; write its host and path in ASCII')
    try:
        HTTPS_ONLY.check(text.strip())
    except NotAllowed as error:
        raise ValueError(str(error)) from error
    if find_spec("httpx2") is None or find_spec("h2") is None:
        raise ValueError(f"{text.strip()} needs DNS over HTTPS; run `pip install 'certwright[doh]'`")


def parse_server(text: str) -> tuple[str, int]:
    """Parse host and port of `host`, `host:port`, `v6` or `[v6]:port`; the default port is 53.

    Raises `ValueError` with a sentence.
    """
    plain = text.strip()
    if is_over_https(text):
        raise ValueError(
            f'"{text}" is a URL of DNS over HTTPS, which only --dns01-recursive-nameservers may name; write '
            "192.0.2.1:53"
        )
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
