"""Compression of the values of rows, each by itself, with a dictionary that is part of the format.

Most of a row is the same in all rows of its kind: names of fields and labels, managed fields. The dictionary,
`rows.dictionary`, contains what certificates, their requests, Secrets, orders and Events have in common; it
was trained on such rows. It MUST NOT change, because rows are only readable with the dictionary that they
were written with: another dictionary needs another `_HEAD`.

Long strings of base64 (keys and certificates in Secrets and requests) are decoded first, because they are
incompressible at six bits per byte.

Rows share no compression context, so the size of a row reveals nothing about another row (CRIME, BREACH): the
dictionary is public and constant.

Source: RFC 8878 (Zstandard), §5 (dictionaries).
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import msgspec
from zstandard import (
    FRAME_HEADER,
    ZstdCompressionDict,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdError,
    frame_content_size,
)

from certwright.kube.util.decoders import msgpack_decoder

_DICTIONARY = Path(__file__).with_name("rows.dictionary")
# No JSON and no msgpack of ours begins with NUL, nor does a sealed value with these bytes.
_HEAD = b"\0z1"
_RESERVED = _HEAD[:1]
# Higher levels save 3 % and take twice the time.
_LEVEL = 3
# Smaller values save less of etcd than their compression costs in a list. Those of certificates are larger.
_SMALLEST = 200
# A row is a few MB at most (etcd's --max-request-bytes); a larger one was not written by us.
_LARGEST = 64 << 20
# Shorter strings of base64 are mostly something else, e.g. names.
# Both patterns begin with a literal, which is found several times as fast as a lookbehind.
_STRING = re.compile(rb'"([A-Za-z0-9+/]{80,}={0,2})(?=")')
_PEM = re.compile(rb"-----\n((?:[A-Za-z0-9+/]{64}\n)*[A-Za-z0-9+/]{1,64}={0,2}\n)(?=-----END )")
_LINE = 64  # characters of base64

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgpack_decoder(list[bytes | list[bytes]]).decode


def without_base64(plain: bytes) -> bytes:
    """The value as it is compressed: text and decoded base64 in turns; of the latter, PEM (RFC 7468) is again
    text and decoded base64 in turns."""
    parts: list[bytes | list[bytes]] = list(_split(plain, _STRING))
    parts[1::2] = [_blocks(part) for part in parts[1::2] if isinstance(part, bytes)]
    return _pack(parts)


def _with_base64(compressible: bytes) -> bytes:
    parts = _unpack(compressible)
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    encoded = [part if isinstance(part, bytes) else _join(part, _lines) for part in parts]
    return _join(encoded, _string)


def _blocks(text: bytes) -> bytes | list[bytes]:
    parts = _split(text, _PEM)
    return text if len(parts) == 1 else parts


def _split(text: bytes, pattern: re.Pattern[bytes]) -> list[bytes]:
    parts, at = list[bytes](), 0
    for match in pattern.finditer(text):
        try:
            decoded = a2b_base64(match[1])
        except Error:
            continue
        if _string(decoded) == match[1].replace(b"\n", b""):  # else it would not be restored
            parts += text[at : match.start(1)], decoded
            at = match.end(1)
    return [*parts, text[at:]]


def _join(parts: list[bytes], encode: Callable[[bytes], bytes]) -> bytes:
    parts[1::2] = map(encode, parts[1::2])
    return b"".join(parts)


def _string(decoded: bytes) -> bytes:
    return b2a_base64(decoded, newline=False)


def _lines(decoded: bytes) -> bytes:
    text = _string(decoded)
    return b"".join([text[at : at + _LINE] + b"\n" for at in range(0, len(text), _LINE)])


class RowCompression:
    """Compresses and decompresses values. To be used in one thread at a time."""

    def compress(self, plain: bytes) -> bytes:
        """The value as stored; `plain` itself if it would not become smaller."""
        must = plain[:1] == _RESERVED  # else it could be taken for a compressed one
        if len(plain) < _SMALLEST and not must:
            return plain
        compressed = _HEAD + self._compressor.compress(without_base64(plain)).removeprefix(FRAME_HEADER)
        return compressed if must or len(compressed) < len(plain) else plain

    def decompress(self, stored: bytes) -> bytes:
        """The inverse of `compress`. Raises `ValueError`."""
        if not stored.startswith(_HEAD):
            return stored
        frame = FRAME_HEADER + stored[len(_HEAD) :]
        try:
            if not 0 <= frame_content_size(frame) <= _LARGEST:
                raise ValueError("its size is not that of a row")
            return _with_base64(self._decompressor.decompress(frame))
        except (ZstdError, msgspec.MsgspecError) as error:
            raise ValueError(str(error)) from error

    @cached_property
    def _dictionary(self) -> ZstdCompressionDict:
        return ZstdCompressionDict(_DICTIONARY.read_bytes())

    @cached_property
    def _compressor(self) -> ZstdCompressor:
        self._dictionary.precompute_compress(level=_LEVEL)
        return ZstdCompressor(level=_LEVEL, dict_data=self._dictionary, write_dict_id=False)

    @cached_property
    def _decompressor(self) -> ZstdDecompressor:
        return ZstdDecompressor(dict_data=self._dictionary)
