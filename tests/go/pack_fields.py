"""Packs field tables, as `go run ./fieldtable fields` prints them, into the data file of the server.

    python tests/go/pack_fields.py TABLE [TABLE ...] DATA_FILE

Tables of several releases are merged, oldest first; of a field that several know, the last says what it is.
One that the last no longer knows is read, and not shown where it is empty.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any

FLAGS = ("repeated", "map", "pointer", "omitempty", "omitzero", "inline", "list")
"""Their order is that of the bits, the first being 1."""


def packed(tables: list[dict[str, Any]]) -> bytes:
    """The data file: compressed JSON with kinds by name, and rows of `[number, JSON name, type, bits]`."""
    kinds: dict[str, str] = {}
    messages: dict[str, dict[int, list[Any]]] = {}
    for table in tables:
        kinds |= table["kinds"]
        for name, fields in table["messages"].items():
            known = messages.setdefault(name, {})
            for row in known.values():
                row[3] |= 1 << FLAGS.index("omitempty")
            known |= {field["n"]: _row(field) for field in fields}
    content = {
        "kinds": dict(sorted(kinds.items())),
        "messages": {
            name: [row for _, row in sorted(fields.items())] for name, fields in sorted(messages.items())
        },
    }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)


def _row(field: dict[str, Any]) -> list[Any]:
    bits = sum(1 << FLAGS.index(flag) for flag in field.get("flags", ()))
    return [field["n"], field["json"], field["type"], bits]


if __name__ == "__main__":
    *sources, target = map(Path, sys.argv[1:])
    Path(target).write_bytes(packed([json.loads(source.read_text()) for source in sources]))
