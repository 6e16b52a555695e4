"""Failed HTTP connections as sentences, without a word of what the server sent.

aiohttp quotes the bytes that it cannot parse, e.g. the banner of an internal service, which an error that
a tenant reads must not show. Imported only where aiohttp is loaded.
"""

from __future__ import annotations

import aiohttp

from certwright.kube.util.encoding import in_words, one_line


def unreachable(error: BaseException, place: str) -> str:
    """The sentence for an error of aiohttp, or of the operating system, on the way to `place`."""
    match error:
        case aiohttp.ClientSSLError():
            return f"no TLS connection to {place}: {one_line(str(error))}"
        case aiohttp.ClientConnectorDNSError():
            return f"the name of {place} cannot be resolved: {in_words(error.os_error)}"
        case aiohttp.ClientProxyConnectionError():
            return f"the proxy on the way to {place} cannot be reached: {in_words(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"{place} cannot be reached: {in_words(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return f"{place} closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return f"the answer of {place} ended before it was complete"
        case aiohttp.ClientResponseError():
            return f"what answered at {place} does not speak HTTP"
        case OSError():
            return f"{place} cannot be reached: {in_words(error)}"
        case _:
            return f"{place} cannot be reached: {type(error).__name__}"
