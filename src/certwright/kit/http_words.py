"""HTTP connection failures as text, without a word of what the server sent.

aiohttp quotes the bytes that it cannot parse, e.g. the banner of an internal service, which an error that
a tenant reads must not show. Imported only where aiohttp is loaded.
"""

from __future__ import annotations

import aiohttp

from certwright.kube.util.encoding import in_words


def connection_words(error: BaseException) -> str:
    """A clause for an error of aiohttp, or of the operating system."""
    match error:
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return "the answer ended before it was complete"
        case aiohttp.ClientResponseError():
            return "what answered does not speak HTTP"
        case OSError():
            return in_words(error)
        case _:
            return type(error).__name__
