"""A process that begins to restore a store, and is killed in the middle of it.

python restoring_child.py etcd MEMBER     prints "half" when some rows are written, and waits
python restoring_child.py sqlite FILE
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from certwright.kube.store.contract import Key
from certwright.kube.store.etcd.backup import refilling
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.sqlite.backup import replacing
from support.sealed import Keys, seal_with

NEW = [(Key("things", "ns", f"new-{number}"), lambda _: (b"", b"new")) for number in range(300)]


async def restore(kind: str, place: str) -> None:
    """Write half of the rows, and never the rest."""
    if kind == "etcd":
        async with refilling(Access((place,)), "/killed", seal_with(Keys()), force=True) as filling:
            await filling.add(NEW)
            await wait()
    else:
        async with replacing(Path(place), seal_with(Keys()), begin_at=1_000, force=True) as store:
            for key, encode in NEW:
                await store.put(key, encode)
            await wait()


async def wait() -> None:
    """Report, and wait to be killed."""
    print("half", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(restore(*sys.argv[1:]))
