"""What a story is: requests to one server. It is told to both, and what they say is compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp

from conformance.peers import NOTHING, Caller, Exchange, Peer

Story = Callable[[Caller], Awaitable[None]]
_BROKEN_OFF = "the story ended with"

STORIES: dict[str, Story] = {}
"""All stories by name."""


def story(function: Story) -> Story:
    """Add a story to the list."""
    name = function.__name__
    assert name not in STORIES, name
    STORIES[name] = function
    return function


def namespaces(name: str) -> tuple[str, str]:
    """The two namespaces that a story has for itself."""
    slug = name.replace("_", "-")[:50].strip("-")
    return slug, f"{slug}-b"


async def tell(name: str, peer: Peer) -> list[Exchange]:
    """Tell a story to one server. What goes wrong in the middle is the last entry of its transcript."""
    caller = Caller(peer, *namespaces(name))
    try:
        await STORIES[name](caller)
    except (AssertionError, LookupError, TypeError, TimeoutError, aiohttp.ClientError) as error:
        caller.transcript.append(Exchange(f"{_BROKEN_OFF} {error!r}", None))
    return caller.transcript


def told_in_vain(transcript: list[Exchange]) -> list[Exchange]:
    """Where a story does not go as it is meant to. Of the reference it is the story's own mistake."""
    return [
        exchange
        for exchange in transcript
        if exchange.asked.startswith(_BROKEN_OFF) or exchange.answered == NOTHING
    ]
