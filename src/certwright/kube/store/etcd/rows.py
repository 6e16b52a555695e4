"""Layout of rows in etcd.

Below the prefix, with NUL between bucket, namespace and name so that keys sort as rows do:

- `m/<bucket>␀<namespace>␀<name>`: the writer, and `meta`;
- `b/<bucket>␀<namespace>␀<name>`: `body`, written in the same transaction, so that metadata is read alone;
- `i/<bucket>␀<namespace>␀<name>`: empty; of some rows, written and deleted with them (`listing.SparseIndex`);
- `store`: the store's id (`identity`);
- `ring`: the data keys that rows are sealed with (`sealing`), wrapped;
- `last`: the last state of the row that the same transaction deletes;
- `format`, and during its upgrade `upgrade`: which format the rows have (`row_format`).

In format 2 values are compressed (`compression`) before they are sealed.

etcd reports the revision of a write only when it is committed. So an encoder, which writes the revision into
`meta` in decimal digits (`contract.Encode`), gets a *stand-in*: a random number that cannot be guessed. The
pieces of `meta` around it are stored; the reader puts the true revision between them.
"""

from __future__ import annotations

import os
import secrets
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from certwright.kube.store.contract import Damaged, DamagedRow, Encode, Key, Row
from certwright.kube.store.damage import Check, DamagedRows
from certwright.kube.store.envelope import BODY, LAST, META, Seal, UnknownDataKey
from certwright.kube.store.etcd.compression import RowCompression
from certwright.kube.store.etcd.messages import at_revision, delete_op, put_op
from certwright.kube.store.log import Place
from certwright.kube.util.decoders import msgpack_decoder

PLAIN_FORMAT, FORMAT, SPLIT_FORMAT, UNFINISHED = b"1", b"2", b"3", b"unfinished"
"""The value of `format`: rows are not compressed, or may be; the same, with bodies on other etcds, as earlier
versions could write; or a restore has not finished."""

INDEX_EVERY = 128
"""One of so many rows is in the sparse index."""


def is_indexed(name: bytes) -> bool:
    """Whether the row with this key, without its prefix, is in the sparse index."""
    return zlib.crc32(name) % INDEX_EVERY == 0


# With nineteen digits, as no revision will have: sizes measured before the write are about right.
_STAND_INS = range(4 * 10**18, 9 * 10**18)


class Content(NamedTuple):
    """The stored parts of a write: `meta` in pieces, and `body`."""

    pieces: list[bytes]
    body: bytes


def encode_apart(encode: Encode) -> Content:
    """Call `encode` with a stand-in, and cut that out of `meta` again. Raises what `encode` raises."""
    stand_in = _STAND_INS[secrets.randbelow(len(_STAND_INS))]
    meta, body = encode(stand_in)
    return Content(meta.split(b"%d" % stand_in), body)


def join(pieces: list[bytes], revision: int) -> bytes:
    """`meta` with the revision in it."""
    return pieces[0] if len(pieces) == 1 else (b"%d" % revision).join(pieces)


class Meta(NamedTuple):
    """The value of an `m/` key. `writer` names one write; `pieces` surround the revision."""

    writer: bytes
    pieces: list[bytes]

    def at(self, revision: int) -> bytes:
        """`meta` with the revision in it."""
        return join(self.pieces, revision)


class LastState(NamedTuple):
    """The value of `last`. `body` None: the body of the row."""

    writer: bytes
    key: Key
    pieces: list[bytes]
    body: bytes | None

    def row(self, revision: int, own_body: bytes) -> Row:
        """The row's last state, for watchers."""
        meta = join(self.pieces, revision)
        return Row(self.key, revision, meta, own_body if self.body is None else self.body)


def new_writer() -> bytes:
    """A unique name for one write."""
    return os.urandom(8)


pack = msgspec.msgpack.Encoder().encode
_unpack_meta = msgpack_decoder(Meta).decode
_unpack_last = msgpack_decoder(LastState).decode


@dataclass(frozen=True, slots=True)
class Span:
    """Keys from `begin` (included) to `end` (excluded)."""

    begin: bytes
    end: bytes


class Layout:
    """Keys and values below one prefix (`/certwright`)."""

    def __init__(self, prefix: str, seal: Seal | None = None, check: Check | None = None) -> None:
        self.seal = seal
        self.damage = DamagedRows()
        """The rows that could not be read."""
        self.compresses = True
        """Whether values are compressed when they are written; compressed ones are always read."""
        self._compression = RowCompression()
        self._check = check
        self.prefix = prefix.rstrip("/")
        root = self.prefix.encode() + b"/"
        self.root = Span(root, root[:-1] + b"0")  # "0" follows "/"
        self.meta = root + b"m/"
        self.body = root + b"b/"
        self.index = root + b"i/"
        self.last = root + b"last"
        self.format = root + b"format"
        self.upgrade = root + b"upgrade"
        self.store = root + b"store"
        self.ring = root + b"ring"
        self.tick = root + b"tick"
        self.compaction = root + b"compaction"

    def keys(self, key: Key) -> tuple[bytes, bytes]:
        """The keys of a row's two byte strings."""
        name = "\0".join(key).encode()
        return self.meta + name, self.body + name

    def key_of(self, meta_key: bytes) -> Key:
        """The key of the row of an `m/` key. Raises `Damaged`."""
        parts = meta_key[len(self.meta) :].decode(errors="surrogateescape").split("\0", 2)
        if len(parts) != 3:
            raise self.damaged(meta_key)
        return Key(*parts)

    def spans(
        self, bucket: str, namespace: str | None, after: Place | None, through: bytes | None = None
    ) -> tuple[Span, Span]:
        """The spans of the rows of a bucket, or of one namespace of it, after a place: metas and bodies.
        `through`: the last key, without its prefix; None: all."""
        parts = (bucket,) if namespace is None else (bucket, namespace)
        begin = end = "\0".join(parts).encode()
        begin, end = begin + b"\0", end + b"\1"
        if after is not None:
            begin = max(begin, "\0".join((bucket, *after)).encode() + b"\0")
        if through is not None:
            end = min(through + b"\0", end)
        begin = min(begin, end)
        return Span(self.meta + begin, self.meta + end), Span(self.body + begin, self.body + end)

    def index_span(self, bucket: str) -> Span:
        """The span of a bucket's part of the sparse index."""
        begin = self.index + bucket.encode()
        return Span(begin + b"\0", begin + b"\1")

    def _meta(self, key: Key, kept: bytes) -> Meta:
        try:
            return _unpack_meta(self._open(key, META, kept))
        except msgspec.MsgspecError:
            raise DamagedRow(key, "no certwright wrote its metadata") from None

    def read_last(self, kv: Any, meta_key: bytes) -> LastState:
        """The value of `last`, of the row that had this `m/` key. Raises `Damaged`."""
        try:
            return _unpack_last(self._open(self.key_of(meta_key), LAST, kv.value))
        except msgspec.MsgspecError:
            raise self.damaged(kv.key) from None

    def row(self, kv: Any, body: bytes | None) -> Row:
        """The row whose `m/` key and value `kv` is; `body` None: it was not read. Raises `DamagedRow`, which
        is recorded, and `UnknownDataKey`."""
        return self.written(kv, body)[1]

    def written(self, kv: Any, body: bytes | None) -> tuple[bytes, Row]:
        """As `row`, with the name of the write."""
        key, revision = self.key_of(kv.key), kv.mod_revision
        try:
            meta = self._meta(key, kv.value)
            opened = b"" if body is None else self._open(key, BODY, body)
            return meta.writer, self._checked(Row(key, revision, meta.at(revision), opened))
        except DamagedRow as error:
            self._note(error)
            raise

    def with_body(self, row: Row, kept: bytes) -> Row:
        """A row that was read without its body, with the value of its `b/` key. Raises as `row` does."""
        try:
            return self._checked(row._replace(body=self._open(row.key, BODY, kept)))
        except DamagedRow as error:
            self._note(error)
            raise

    def _checked(self, row: Row) -> Row:
        if self._check is not None and (problem := self._check(row)):
            raise DamagedRow(row.key, problem)
        return row

    def _note(self, error: DamagedRow) -> None:
        # An unknown data key is not damage until this server has caught up with the ring; then its reader
        # records it.
        if not isinstance(error, UnknownDataKey):
            self.damage.note(error)

    def _open(self, key: Key, part: bytes, kept: bytes) -> bytes:
        opened = kept if self.seal is None else self.seal.decrypt(key, part, kept)
        try:
            return self._compression.decompress(opened)
        except ValueError as error:
            raise DamagedRow(key, f"it does not decompress: {error}") from None

    def _close(self, key: Key, part: bytes, plain: bytes) -> bytes:
        # Compressed first, because sealed bytes do not compress.
        value = self._compression.compress(plain) if self.compresses else plain
        return value if self.seal is None else self.seal.encrypt(key, part, value)

    def put_ops(self, key: Key, meta: Meta, body: bytes) -> list[Any]:
        """The writes of a row, that of its `m/` key first."""
        meta_key, body_key = self.keys(key)
        writes = [
            put_op(meta_key, self._close(key, META, pack(meta))),
            put_op(body_key, self._close(key, BODY, body)),
        ]
        if is_indexed(name := meta_key[len(self.meta) :]):
            writes.append(put_op(self.index + name, b""))
        return writes

    def delete_ops(self, last: LastState) -> list[Any]:
        """The deletion of a row, with its last state."""
        meta_key, body_key = self.keys(last.key)
        words = self._close(last.key, LAST, pack(last))
        writes = [delete_op(meta_key), delete_op(body_key), put_op(self.last, words)]
        if is_indexed(name := meta_key[len(self.meta) :]):
            writes.append(delete_op(self.index + name))
        return writes

    def conditions(self, key: Key, revision: int) -> list[Any]:
        """The conditions that the row is at a revision, and that the ring it was sealed with is current."""
        conditions = [at_revision(self.keys(key)[0], revision)]
        if self.seal is not None and key.bucket in self.seal.buckets:
            conditions.append(at_revision(self.ring, self.seal.version))
        return conditions

    def damaged(self, key: bytes) -> Damaged:
        """The error for a value that certwright did not write."""
        shown = key.decode(errors="replace").replace("\0", " ")
        return Damaged(
            f"etcd's key {shown!r} does not hold what certwright writes: restore a snapshot of etcd, or"
            " name another --etcd-prefix to begin with an empty store"
        )
