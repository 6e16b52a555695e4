"""Origins of URLs (RFC 6454 §4), and which of them belong to one ACME server.

A server chooses the URLs of its orders, authorizations, challenges and certificates, and Orders and
Challenges repeat them. A signed request to any other server would disclose an account's signature to it,
and let the author of the URL choose a target inside our network.
"""

from __future__ import annotations

from typing import Final

_DEFAULT_PORTS: Final = {"https": ":443", "http": ":80"}


def origin_of(url: str) -> str:
    """`https://host` or `https://host:port` in lower case, without the scheme's default port; empty if the
    URL has no host."""
    # Split by hand, because `urlsplit` would cache the unique URLs of each order. Origins are
    # compared as whole strings, so that user names, backslashes and control characters never match.
    scheme, separator, rest = url.partition("://")
    for mark in "/?#":
        rest = rest.partition(mark)[0]
    if not separator or not rest:
        return ""
    scheme = scheme.lower()
    return f"{scheme}://{rest.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ''))}"
