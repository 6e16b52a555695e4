"""The fenced blocks of a how-to page.

`sh` blocks run in order, in one folder; a command with the comment `# fails` must fail. A block whose first
line is a comment with a file name (`# web.yaml`, `// /etc/x.rules`) is that file. All other blocks (`text`,
`console`) are for the reader only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "howto"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)
_NAME = re.compile(r"(?:#|//) (/?[\w.-]+(?:/[\w.-]+)*\.\w+|/\S+)\n")


@dataclass(frozen=True, slots=True)
class Script:
    """Commands for a shell."""

    text: str


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader writes; its first line has its name."""

    name: str
    text: str


def blocks(text: str) -> Iterator[Script | File]:
    """The blocks of a page that are run or written, in order."""
    for language, content in _BLOCK.findall(text):
        if language == "sh":
            yield Script(content)
        elif named := _NAME.match(content):
            yield File(named[1], content)


def ways(page: Path) -> dict[str, str]:
    """The parts of a page that are followed each on a machine of its own: "page", and "by hand", the section
    of that name. Parts without commands are left out."""
    text = page.read_text()
    before, _, by_hand = text.partition("\n## By hand\n")
    by_hand, _, after = by_hand.partition("\n## ")
    parts = {"page": before + after, "by hand": by_hand}
    return {name: part for name, part in parts.items() if any(isinstance(b, Script) for b in blocks(part))}
