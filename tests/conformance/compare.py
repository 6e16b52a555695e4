"""Two transcripts side by side."""

from __future__ import annotations

import difflib
import json

from conformance.differences import level
from conformance.peers import Exchange


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
