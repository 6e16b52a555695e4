"""Two transcripts side by side."""

from __future__ import annotations

import difflib
import json

from conformance.differences import level
from conformance.peers import Exchange


def compare(theirs: list[Exchange], ours: list[Exchange]) -> list[str]:
    """Each difference, to be read by people; empty where there is none."""
    found: list[str] = []
    for number, (one, other) in enumerate(zip(theirs, ours, strict=False)):
        if one.asked != other.asked:
            found.append(f"#{number}: the stories part: {one.asked!r} and {other.asked!r}")
            break
        if text := difference(one, other):
            found.append(f"#{number}: {text}")
    if len(theirs) != len(ours) and not found:
        found.append(f"the reference answered {len(theirs)} times, ours {len(ours)} times")
    return found


def difference(one: Exchange, other: Exchange) -> str:
    """How two answers to one request differ beyond what is meant to; empty where they do not."""
    theirs, ours = level(one.asked, one.answered, other.answered)
    if theirs == ours:
        return ""
    lines = difflib.unified_diff(_lines(theirs), _lines(ours), "reference", "ours", lineterm="", n=2)
    return "\n".join([f"{one.asked} {one.sent}", *lines])


def _lines(value: object) -> list[str]:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
