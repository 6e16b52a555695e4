"""Two transcripts side by side."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable

import aiohttp

from conformance.differences import level
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


def compare(theirs: list[Exchange], ours: list[Exchange]) -> list[str]:
    """Each difference, to be read by people; empty where there is none."""
    differences: list[str] = []
    for number, (exchange, other) in enumerate(zip(theirs, ours, strict=False)):
        if exchange.asked != other.asked:
            differences.append(f"#{number}: the stories part: {exchange.asked!r} and {other.asked!r}")
            break
        if text := difference(exchange, other):
            differences.append(f"#{number}: {text}")
    if len(theirs) != len(ours) and not differences:
        differences.append(f"the reference answered {len(theirs)} times, ours {len(ours)} times")
    return differences


def difference(reference: Exchange, other: Exchange) -> str:
    """How two answers to one request differ beyond what is meant to; empty where they do not."""
    theirs, ours = level(reference.asked, reference.answered, other.answered)
    if theirs == ours:
        return ""
    lines = difflib.unified_diff(_lines(theirs), _lines(ours), "reference", "ours", lineterm="", n=2)
    return "\n".join([f"{reference.asked} {reference.sent}", *lines])


def _lines(value: object) -> list[str]:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
