"""A process that writes into a store until its file may not grow, then may again, and prints what happened:

python writing_child.py FILE
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from certwright.kube.store.contract import Key, StoreError
from certwright.kube.store.sqlite.file import WAL_BYTES
from certwright.kube.store.sqlite.store import SqliteStore, open_sqlite


def limit_files(size: int) -> None:
    """Let no file of this process grow beyond `size` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def fill(path: Path) -> None:
    """Write until it fails, several at once; then, with room again, write once more."""
    store = await open_sqlite(path)
    limit_files(WAL_BYTES + 100_000)
    number = 0
    failures: set[str] = set()
    while not failures:
        failures = told(await put_some(store, number))
        number += 20
    # What gathers while another fails, fails as well: neither readers nor later writers may see it.
    last = Key("things", "", "last")
    failures |= told([await fail_one_before(store, last)])
    print(*failures, sep="\n")
    print("the failed write is invisible:", await store.get(last) is None, await store.latest(last) is None)
    committed = store.revision
    limit_files(resource.RLIM_INFINITY)
    row = await store.put(last, lambda revision: (b"", b"again"), expect=0)
    heard = await store.watch("things", after=committed).next()
    print("recovered", row.revision > committed, [event.row == row for event in heard or ()])
    await store.close()


def told(results: list[object]) -> set[str]:
    """What was said of those that failed."""
    return {f"{type(error).__name__}: {error}" for error in results if isinstance(error, StoreError)}


async def fail_one_before(store: SqliteStore, key: Key) -> object:
    """Put a row while one is in flight for which there is no room in any case; what became of it."""
    large = asyncio.ensure_future(
        store.put(Key("things", "", "large"), lambda _: (b"", b"x" * 2 * WAL_BYTES))
    )
    await asyncio.sleep(0)  # it gathers
    await asyncio.sleep(0)  # it is in flight; that it failed is told in the next turn of the loop at first
    try:
        return await store.put(key, lambda _: (b"", b"with it"))
    except StoreError as error:
        return error
    finally:
        await asyncio.gather(large, return_exceptions=True)


async def put_some(store: SqliteStore, number: int) -> list[object]:
    """Twenty creations, in two turns of the loop so that some gather while others are in flight."""
    works = []
    for offset in range(20):
        key = Key("things", "", f"{number + offset}")
        works.append(asyncio.ensure_future(store.put(key, lambda revision: (b"", b"x" * 50_000), expect=0)))
        await asyncio.sleep(0)
    return await asyncio.gather(*works, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(fill(Path(sys.argv[1])))
