"""Backup of a store: its source (`Dump`), and the file format, which is independent of the store.

A first line with the format; then, compressed (RFC 1950), messages in msgpack, each prefixed with its length
in four bytes: a `Header`, rows, and at last a `Footer`; then the SHA-256 of everything before. Rows that are
sealed in the store are sealed in the file, with the same data key; the ring is in the header.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from certwright.kube.store.contract import Damaged, Key, Row
from certwright.kube.store.damage import DamagedRows
from certwright.kube.util.decoders import msgpack_decoder


@dataclass(frozen=True, slots=True)
class Dump:
    """`rows` can be read once, in pages; close them when leaving early. `ring`: the data keys as stored;
    None: no row is sealed there. `damage`: the rows that were left out so far, because they cannot be
    read."""

    revision: int
    ring: bytes | None
    rows: AsyncGenerator[list[Row], None]
    damage: DamagedRows


_MAGIC = b"certwright backup 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_CHUNK = 1 << 20
_LEVEL = 6


class Header(msgspec.Struct, frozen=True, tag="header", array_like=True):
    """What the backup was made from. `made`: seconds since 1970; `ring` as stored, None: no row is sealed."""

    version: str
    made: int
    store: str
    revision: int
    ring: bytes | None


class _Row(msgspec.Struct, frozen=True, tag="row", array_like=True):
    bucket: str
    namespace: str
    name: str
    revision: int
    meta: bytes
    body: bytes


class Footer(msgspec.Struct, frozen=True, tag="footer", array_like=True):
    """End marker: the backup is complete."""

    rows: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(Header | _Row | Footer).decode


class BackupWriter:
    """Writes a backup beside `path` and renames it to `path` when it is complete. Only the owner may read it.

    Use as a context manager. Raises `OSError`.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._header = header
        self._rows = 0
        self._digest = hashlib.sha256()
        self._pack = zlib.compressobj(_LEVEL)

    def __enter__(self) -> BackupWriter:
        handle, self._temporary = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        self._file: IO[bytes] = os.fdopen(handle, "wb")
        self._write(_MAGIC)
        self._add(self._header)
        return self

    def add(self, row: Row) -> None:
        """Append one row, as it may be stored on disk."""
        self._add(_Row(*row.key, row.revision, row.meta, row.body))
        self._rows += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._file:
                if kind is None:
                    self._finish()
            if kind is None:
                os.replace(self._temporary, self._path)
        finally:
            Path(self._temporary).unlink(missing_ok=True)

    def _finish(self) -> None:
        self._add(Footer(self._rows))
        self._write(self._pack.flush())
        self._file.write(self._digest.digest())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _add(self, message: Header | _Row | Footer) -> None:
        encoded = _encode(message)
        self._write(self._pack.compress(len(encoded).to_bytes(4) + encoded))

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


class BackupReader:
    """Reads a backup, after a check of the whole file. Raises `OSError`, `Damaged`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size - _DIGEST_BYTES
        self._check()
        messages = self._messages()
        header = next(messages, None)
        if not isinstance(header, Header):
            raise self._broken()
        self.header = header
        self._rest = messages

    def rows(self) -> Iterator[Row]:
        """The rows as stored in the file; can be read once."""
        counted, footer = 0, None
        for message in self._rest:
            if isinstance(message, Footer):
                footer = message
            elif isinstance(message, _Row):
                counted += 1
                key = Key(message.bucket, message.namespace, message.name)
                yield Row(key, message.revision, message.meta, message.body)
        if footer is None or footer.rows != counted:
            raise self._broken()

    def _check(self) -> None:
        with self._path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise Damaged(f"{self._path} is not a backup that this version of certwright can read")
            file.seek(0)
            digest, left = hashlib.sha256(), self._size
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                digest.update(chunk)
                left -= len(chunk)
            if file.read() != digest.digest():
                raise self._broken()

    def _broken(self) -> Damaged:
        return Damaged(f"{self._path} is damaged or cut short (its checksum is wrong): use another backup")

    def _messages(self) -> Iterator[Header | _Row | Footer]:
        buffer = bytearray()
        for piece in self._unpacked():
            buffer += piece
            at = 0
            while len(buffer) - at >= 4 and len(buffer) - at >= (end := 4 + _length(buffer, at)):
                yield _decode(memoryview(buffer)[at + 4 : at + end].tobytes())
                at += end
            del buffer[:at]

    def _unpacked(self) -> Iterator[bytes]:
        unpack = zlib.decompressobj()
        left = self._size - len(_MAGIC)
        with self._path.open("rb") as file:
            file.seek(len(_MAGIC))
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield unpack.decompress(chunk)
        yield unpack.flush()


def _length(buffer: bytearray, at: int) -> int:
    return int.from_bytes(buffer[at : at + 4])
