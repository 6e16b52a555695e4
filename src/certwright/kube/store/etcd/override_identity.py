"""Identity check of overrides: whether the bodies of this store are where the options say.

The key `overrides` of the main etcd records which buckets have their bodies elsewhere, and which of them
together. The key `contents` of each other etcd holds the id of the store, and its buckets. Both are written
when the store is new, or by a restore. So a server that has other options, an etcd that was emptied or
replaced, and one that has the bodies of another store are refused, instead of being served with rows that
cannot be read. Addresses are not compared: an etcd MAY move.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from certwright.kube.store.contract import Damaged, Unavailable
from certwright.kube.store.etcd.client import Access, EtcdClient
from certwright.kube.store.etcd.messages import (
    RANGE,
    TXN,
    RangeRequest,
    TxnRequest,
    at_version,
    delete_op,
    put_op,
    read_op,
)
from certwright.kube.store.etcd.overrides import Overrides, Place
from certwright.kube.store.etcd.rows import FORMAT, OVERRIDDEN_FORMAT, UNFINISHED, Layout
from certwright.kube.store.etcd_identity import identify
from certwright.kube.util.decoders import json_decoder

_FLAG = "--etcd-servers-overrides"


class _Record(msgspec.Struct, frozen=True):
    """The value of `overrides`. `flag`: the option that it was made with, for messages."""

    places: list[str]
    flag: str


class Contents(msgspec.Struct, frozen=True):
    """The value of `contents`."""

    store: str
    buckets: str


_encode = msgspec.json.Encoder().encode
_decode_record = json_decoder(_Record).decode
_decode_contents = json_decoder(Contents).decode
_decode_epoch = json_decoder(dict[str, int]).decode


def encode_epoch(swept: dict[str, int]) -> bytes:
    """The value of `epoch`: by the name of a place, the revision up to which its bodies may be swept."""
    return _encode(swept)


def decode_epoch(kvs: Any) -> tuple[int, dict[str, int]]:
    """The revision of `epoch`, and its value; 0: it does not exist."""
    return (kvs[0].mod_revision, _decode_epoch(kvs[0].value)) if kvs else (0, {})


def new_store_ops(layout: Layout, overrides: Overrides) -> list[Any]:
    """The writes by which an empty prefix becomes a store."""
    if not overrides.places:
        return [put_op(layout.format, FORMAT)]
    record = _Record(_names(overrides), as_flag({place: place.client.access for place in overrides.places}))
    return [
        put_op(layout.format, OVERRIDDEN_FORMAT),
        put_op(layout.overrides, _encode(record)),
        # Also after a restore, so that no write from before it meets its condition.
        put_op(layout.epoch, encode_epoch({})),
    ]


def as_flag(places: dict[Place, Access]) -> str:
    """The option with these places."""
    return ",".join(
        f"{bucket if '/' in bucket else '/' + bucket}#"
        + ";".join(f"{'https' if access.tls else 'http'}://{member}" for member in access.members)
        for place, access in places.items()
        for bucket in place.buckets
    )


def _names(overrides: Overrides) -> list[str]:
    return sorted(place.name for place in overrides.places)


async def prepare_places(client: EtcdClient, layout: Layout, overrides: Overrides) -> None:
    """Let the other etcds belong to this store, if it is new. MUST precede the format: a store that has one
    has its bodies there. Raises `Damaged`, `Unavailable`."""
    if not overrides.places:
        return
    answer = await client.call(TXN, TxnRequest(success=[read_op(layout.format), read_op(layout.upgrade)]))
    formats, upgrades = (response.response_range.kvs for response in answer.responses)
    if formats and formats[0].value in (OVERRIDDEN_FORMAT, UNFINISHED):
        return
    if formats or upgrades:
        raise await refuse_format(client, layout, overrides)
    store = (await identify(client, layout)).store
    for place in overrides.places:
        await _require_apart(client, place, layout)
        value = _encode(Contents(store, place.name))
        request = TxnRequest(
            compare=[at_version(layout.contents, 0)], success=[put_op(layout.contents, value)]
        )
        await place.client.call(TXN, request)
        _check(place, layout, store, (await _read(place, layout))[0])


async def empty_places(client: EtcdClient, layout: Layout, overrides: Overrides, *, force: bool) -> None:
    """Empty the other etcds for a restore. Raises `Damaged`; `Unavailable`, also if one of them has the
    bodies of another store and `force` was not given."""
    store = (await identify(client, layout)).store
    for place in overrides.places:
        await _require_apart(client, place, layout)
        contents, _ = await _read(place, layout)
        if not force and contents is not None and contents.store != store:
            raise Unavailable(
                f"etcd at {place.client.access} holds the contents of another store below {layout.prefix};"
                " --force replaces it, once no server uses it"
            )
        await place.client.call(TXN, TxnRequest(success=[delete_op(layout.root.begin, layout.root.end)]))
        value = _encode(Contents(store, place.name))
        await place.client.call(TXN, TxnRequest(success=[put_op(layout.contents, value)]))


async def _require_apart(client: EtcdClient, place: Place, layout: Layout) -> None:
    """Raise `Damaged` if the other etcd is the main one, or has a store of its own."""
    request = RangeRequest(key=layout.format)
    main, other = await client.call(RANGE, request), await place.client.call(RANGE, request)
    if main.header.cluster_id == other.header.cluster_id:
        raise Damaged(
            f"{_FLAG}: etcd at {place.client.access} is that of --store: name another one for {place.name}"
        )
    if other.kvs:
        raise Damaged(
            f"{_FLAG}: etcd at {place.client.access} holds a store of its own below {layout.prefix}: name"
            " another etcd, or another --etcd-prefix"
        )


async def check_places(client: EtcdClient, layout: Layout, overrides: Overrides) -> None:
    """Return if the bodies are on the etcds of these options. Begins the epoch of `layout`: MUST follow the
    revision from which the feed reads. Raises `Damaged`, `Unavailable`."""
    if not overrides.places:
        return
    keys = (layout.overrides, layout.epoch, layout.store)
    answer = await client.call(TXN, TxnRequest(success=list(map(read_op, keys))))
    records, epochs, stores = (response.response_range.kvs for response in answer.responses)
    if not records:
        raise Damaged(f"etcd at {client.access} holds no store below {layout.prefix}")
    record = _decode_record(records[0].value)
    if record.places != _names(overrides):
        raise _other_options(client, layout, record)
    layout.epoch_revision, swept = decode_epoch(epochs)
    for place in overrides.places:
        contents, revision = await _read(place, layout)
        _check(place, layout, stores[0].value.decode(), contents)
        if revision < (least := swept.get(place.name, 0)):
            raise Damaged(
                f"etcd at {place.client.access} is at revision {revision}, and the store has seen {least}: an"
                " older snapshot was restored; restore a newer one, or a backup with `certwright restore`"
            )


async def _read(place: Place, layout: Layout) -> tuple[Contents | None, int]:
    answer = await place.client.call(RANGE, RangeRequest(key=layout.contents))
    return (_decode_contents(answer.kvs[0].value) if answer.kvs else None), answer.header.revision


def _check(place: Place, layout: Layout, store: str, contents: Contents | None) -> None:
    where = f"{_FLAG}: etcd at {place.client.access}, below {layout.prefix},"
    if contents is None:
        raise Damaged(
            f"{where} does not have the contents of {place.name}: it was emptied or replaced; name the right"
            " etcd, restore a snapshot of it, or a backup with `certwright restore`"
        )
    if contents.store != store:
        raise Damaged(
            f"{where} has the contents of another store: name another etcd or another --etcd-prefix, or"
            " remove them (etcdctl del --prefix) if that store does not exist any more"
        )
    if contents.buckets != place.name:
        raise Damaged(
            f"{where} has the contents of {contents.buckets}, not of {place.name}: name it for those"
        )


async def refuse_format(client: EtcdClient, layout: Layout, overrides: Overrides) -> Damaged:
    """The error for options that do not fit the format of the store."""
    kvs = (await client.call(RANGE, RangeRequest(key=layout.overrides))).kvs
    if kvs:
        return _other_options(client, layout, _decode_record(kvs[0].value))
    return Damaged(
        f"the store in etcd at {client.access}, below {layout.prefix}, has all its contents there: start"
        f" without {_FLAG} {_resources(overrides)}; `certwright backup`, and `restore` with the option, move"
        " them"
    )


def _other_options(client: EtcdClient, layout: Layout, record: _Record) -> Damaged:
    return Damaged(
        f"the store in etcd at {client.access}, below {layout.prefix}, has its contents elsewhere: start with"
        f" {_FLAG} '{record.flag}' (or the present addresses of these etcds); `certwright backup`, and"
        " `restore` with other options, move them"
    )


def _resources(overrides: Overrides) -> str:
    buckets: Iterable[str] = sorted(bucket for place in overrides.places for bucket in place.buckets)
    return ",".join(buckets)
