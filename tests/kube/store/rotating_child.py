"""A process that writes Secrets and turns the data keys beside, until it is killed.

python rotating_child.py FILE ROUND    prints the name of each row, and "rotating" for each turn

The wrapping key is in WRAPPING_KEY, in hexadecimal digits.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from certwright.kube.store.contract import Key
from certwright.kube.store.sqlite.store import open_sqlite
from support.sealed import SECRETS, Keys, seal_with


async def main(path: Path, turn: str) -> None:
    """Write and turn, for ever."""
    keys = Keys(bytes.fromhex(os.environ["WRAPPING_KEY"]))
    store = await open_sqlite(path, seal=seal_with(keys))
    rotation = store.rotation
    assert rotation is not None

    async def write() -> None:
        for number in itertools.count():
            key = Key(SECRETS, "acknowledged", f"{turn}-{number}")
            await store.put(key, lambda revision: (b"%d" % revision, b"x" * 2_000), expect=0)
            os.write(1, f"{key.name}\n".encode())

    async def turn_keys() -> None:
        while True:
            await rotation.rotate()
            os.write(1, b"rotating\n")
            await rotation.finished()

    await asyncio.gather(write(), turn_keys())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
