"""The format of the rows below a prefix, and its upgrade while servers run.

Format 1: values are plain, or sealed. Format 2: they may be compressed before they are sealed. Servers of
this version read both. They write the format that the prefix has: a new prefix has format 2; an existing one
keeps format 1 until an operator requests the upgrade, because servers of earlier versions cannot read format
2 and do not announce themselves.

A server of an earlier version refuses to start on format 2. One that runs during the upgrade ends before the
first row of format 2 exists: the upgrade first deletes the key `format`, which these servers take for an
emptied prefix, and then writes it with the new value. The key `upgrade` tells the servers of this version
that the prefix was not emptied.

Format 3, which is refused, is format 2 with bodies on other etcds (`--etcd-servers-overrides` of earlier
versions).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from certwright.kube.store.contract import Damaged
from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.messages import (
    EVENT_DELETE,
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    at_revision,
    at_version,
    delete_op,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.rows import FORMAT, PLAIN_FORMAT, SPLIT_FORMAT, UNFINISHED, Layout

_log = logging.getLogger(__name__)


async def settle_format(client: EtcdClient, layout: Layout, *, upgrade: bool = False) -> None:
    """Read or write the format of the prefix, and let `layout` write it. `upgrade`: rows are written in the
    newest format from now on. Raises `Damaged`, `Unavailable`."""
    while True:
        # Also the second half of an upgrade that was interrupted.
        answer = await client.call(
            TXN,
            TxnRequest(
                compare=[at_version(layout.format, 0)],
                success=[put_op(layout.format, FORMAT), delete_op(layout.upgrade)],
                failure=[read_op(layout.format)],
            ),
        )
        if answer.succeeded:
            layout.compresses = True
            return
        kept = answer.responses[0].response_range.kvs[0]
        if kept.value != PLAIN_FORMAT or not upgrade:
            break
        await client.call(
            TXN,
            TxnRequest(
                compare=[at_revision(layout.format, kept.mod_revision)],
                success=[delete_op(layout.format), put_op(layout.upgrade, FORMAT)],
            ),
        )
        _log.info("the rows below %s are compressed from now on", layout.prefix)
    _refuse_unreadable(layout, kept.value)
    layout.compresses = kept.value != PLAIN_FORMAT
    if not layout.compresses:
        _log.info("rows in etcd are not compressed; --etcd-upgrade-format changes that")


async def check_format(client: EtcdClient, layout: Layout) -> None:
    """Return if the rows of the prefix, if it has any, can be read. Raises `Damaged`, `Unavailable`."""
    for kept in (await client.call(RANGE, RangeRequest(key=layout.format))).kvs:
        _refuse_unreadable(layout, kept.value)


def follow_format(layout: Layout, group: Iterable[Any], part: Any) -> str:
    """Follow an event of the key `format`, one of a transaction's `group`. Returns what happened to the
    prefix, for an operator, if the server must not continue; else an empty text."""
    if part.type == EVENT_DELETE:
        is_upgrade = any(other.kv.key == layout.upgrade and other.type != EVENT_DELETE for other in group)
        return "" if is_upgrade else f"was emptied below {layout.prefix}"
    if part.kv.value == UNFINISHED:
        return f"is being replaced by a backup below {layout.prefix}"
    layout.compresses = part.kv.value != PLAIN_FORMAT
    return ""


def _refuse_unreadable(layout: Layout, stored_format: bytes) -> None:
    where = layout.root.begin.decode()
    if stored_format in (FORMAT, PLAIN_FORMAT):
        return
    if stored_format == UNFINISHED:
        raise Damaged(
            f"a backup was not restored to the end into etcd below {where}: restore it again, with --force"
        )
    if stored_format == SPLIT_FORMAT:
        raise Damaged(
            f"the store in etcd below {where} has contents on other etcds (--etcd-servers-overrides), which"
            " this version cannot read: run `certwright backup` with the release before, then `certwright"
            " restore` with this one into a new etcd or --etcd-prefix"
        )
    raise Damaged(
        f"what lies in etcd below {where} was written by a newer certwright"
        f" (format {stored_format.decode(errors='replace')}): run that, or name another --etcd-prefix"
    )
