"""Identity of the store below a prefix of etcd: its id, and its installation.

A key holds the store's id, and the mark in each server's data directory records it. An etcd that was emptied,
replaced, or restored from an older snapshot is refused instead of being served as an empty store.

A new server of the same installation looks like the first server of another installation: both have an empty
data directory, and perhaps the same encryption key. The owner's name, which is an option, distinguishes them.
A server that has worked on the store before is known by its mark; it MAY give the store a name, and is served
without one, so that the option can be introduced server by server.
"""

from __future__ import annotations

import logging

from certwright.kube.store.contract import Damaged
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.messages import (
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    at_version,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import Layout
from certwright.kube.store.mark import Mark, MarkFile, new_id

_log = logging.getLogger(__name__)


async def read_id(client: EtcdClient, layout: Layout) -> tuple[str | None, int]:
    """The id of the store, None if it has none; and etcd's revision."""
    answer = await client.call(RANGE, RangeRequest(key=layout.store))
    return (answer.kvs[0].value.decode() if answer.kvs else None), answer.header.revision


async def check_mark(client: EtcdClient, layout: Layout, marks: MarkFile) -> None:
    """Raise `Damaged` if the mark is for this prefix, and the store is another or an older one. Performs file
    I/O."""
    mark = marks.read()
    if mark is not None and mark.place == layout.prefix:
        marks.check(mark, *await read_id(client, layout))


async def identify(client: EtcdClient, layout: Layout) -> Mark:
    """The mark of the store as it is now; a store without an id gets one."""
    request = TxnRequest(
        compare=[at_version(layout.store, 0)],
        success=[put_op(layout.store, new_id().encode())],
        failure=[read_op(layout.store)],
    )
    await client.call(TXN, request)
    store, revision = await read_id(client, layout)
    return Mark(store or "", revision, layout.prefix)


def owner_key(layout: Layout) -> bytes:
    """The key of the owner's name. Earlier versions neither read nor write it."""
    return layout.root.begin + b"owner"


async def check_owner(access: Access, prefix: str, owner: str, marks: MarkFile) -> None:
    """Return if a server of `owner` (empty: without a name) may use the prefix; a new store gets the name.
    `marks`: where the server has recorded the store that it used before. Raises `Damaged`, `Unavailable`,
    `OSError`."""
    client, layout = EtcdClient(access), Layout(prefix)
    key, place = owner_key(layout), f"etcd at {access}, below {layout.prefix},"
    try:
        mark = marks.read()
        is_known = mark is not None and (await read_id(client, layout))[0] == mark.store
        # A store without a name is named by one of its own servers only.
        unnamed = [at_version(key, 0), *([] if is_known else [at_version(layout.format, 0)])]
        naming = [put_op(key, owner.encode())] if owner else []
        read = [read_op(key), read_op(layout.format)]
        answer = await client.call(TXN, TxnRequest(compare=unnamed, success=naming, failure=read))
    finally:
        await client.close()
    if answer.succeeded:
        return
    names, formats = (response.response_range.kvs for response in answer.responses)
    name = names[0].value.decode(errors="replace") if names else ""
    if name == owner:
        return
    if not owner and is_known:
        _log.warning("%s belongs to %r: give this server --etcd-owner %s, too", place, name, name)
        return
    if not name and formats:
        raise Damaged(
            f"{place} holds a store without an owner: if it is that of {owner!r}, start one of its present"
            f" servers with --etcd-owner {owner} first, or write the name to the key {key.decode()};"
            " otherwise name another --etcd-prefix"
        )
    fix = f"it is started with --etcd-owner {owner}" if owner else "it has no --etcd-owner"
    raise Damaged(
        f"{place} holds the store of {name!r}, and this server is not one of its servers: {fix}. Give it"
        f" --etcd-owner {name} if it is, otherwise another --etcd-prefix"
    )
