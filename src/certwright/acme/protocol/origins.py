"""Origins of URLs (RFC 6454 §4), and which of them belong to one ACME server.

A server names the URLs of its orders, authorizations, challenges and certificates itself, and Orders and
Challenges repeat them. A signed request to any other server would show that server an account's signature,
and let the author of the URL choose a target inside our network.
"""

from __future__ import annotations

from typing import Final

_DEFAULT_PORTS: Final = {"https": ":443", "http": ":80"}


def origin_of(url: str) -> str:
    """`https://host` or `https://host:port` in small letters, without the scheme's own port; empty where the
    URL has no host."""
    # Cut by hand: each order has URLs of its own, which `urlsplit` would have to parse and cache. Origins are
    # compared as whole texts, so that user names, backslashes and control characters never match.
    scheme, separator, rest = url.partition("://")
    for mark in "/?#":
        rest = rest.partition(mark)[0]
    if not separator or not rest:
        return ""
    scheme = scheme.lower()
    return f"{scheme}://{rest.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ''))}"
