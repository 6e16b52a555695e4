"""Drives a vendor's client, in an environment of its own (`make sdks`).

Reads a JSON object from stdin, adds TXT values, lists them, removes them, lists again, and writes `{"added",
"left"}` to stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Protocol

Given = dict[str, Any]


class Client(Protocol):
    """A client that has found the zone."""

    def add(self, value: str) -> None:
        """Add a value, without quotes."""

    def values(self) -> list[str]:
        """All values of the name."""

    def remove(self) -> None:
        """Remove all values of the name."""


def drive(connect: Callable[[Given], Client]) -> None:
    given = json.load(sys.stdin)
    client = connect(given)
    for value in given["values"]:
        client.add(value)
    added = [value.strip('"') for value in client.values()]
    client.remove()
    json.dump({"added": sorted(added), "left": client.values()}, sys.stdout)
