"""A process that writes into a store on two etcds until it is killed.

python overriding_child.py MAIN OTHER PREFIX ROUND   prints the name of each row that it has written
"""

from __future__ import annotations

import asyncio
import os
import sys

from certwright.kube.store.contract import Key
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import open_etcd
from conformance.store_words import BUCKET, saying

WRITERS = 8


async def write(main: str, other: str, prefix: str, turn: str) -> None:
    """Create, replace and delete rows with several writers, for ever."""
    overrides = {BUCKET: Access((other,))}
    store = await open_etcd(Access((main,)), prefix=prefix, compact_every_s=0, overrides=overrides)

    async def keep_writing(writer: int) -> None:
        busy, number = Key(BUCKET, "busy", f"{turn}-{writer}"), 0
        while True:
            key = Key(BUCKET, "rows", f"{turn}-{writer}-{number}")
            await store.put(key, saying(key.name), expect=0)
            os.write(1, f"{key.name}\n".encode())
            await store.put(busy, saying(str(number)))
            if number % 3 == 2:
                await store.delete(busy)
            number += 1

    await asyncio.gather(*map(keep_writing, range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(write(*sys.argv[1:]))
