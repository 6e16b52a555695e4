"""Compressed storage of the objects of one kind: idle objects are packed.

A decoded object takes some kilobytes, a packed object some hundred bytes, and thousands of objects are idle
for months between two reads. So only the most recently written or read objects are kept decoded.

The others are compressed by Zstandard with a dictionary trained on some of them. The dictionary contains what
most of them share (field names, labels, CA certificates); the rest of an object is little more than its UIDs,
keys and signatures.

Source: RFC 8878 (Zstandard), §5 (dictionaries); zstd's manual, `ZDICT_trainFromBuffer`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
from zstandard import (
    DICT_TYPE_RAWCONTENT,
    FRAME_HEADER,
    ZstdCompressionDict,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdError,
    train_dictionary,
)

from certwright.kube.api.meta import ObjectKey

T = TypeVar("T")

# An object is written several times in the seconds of its creation; packing it each time would be wasted.
# This many of a kind are usually created at the same time.
FRESH = 512
READ = 128
# Placeholder for a fresh object's bytes, so that all keys are in one mapping.
_NOT_PACKED = b""
_NOTE = 8


class Packing(msgspec.Struct, Generic[T], frozen=True):
    """Conversion of an object to bytes and back to an equal object. The bytes of different objects should
    have much in common. `note` returns a number (0 to 2**64 - 1) that is read more often than the object, and
    is stored beside it. Objects for which `is_sample` returns False are kept out of the compression
    dictionary, which outlives them."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    note: Callable[[T], int] | None = None
    is_sample: Callable[[T], bool] = lambda _: True


class PackedObjects(Generic[T]):
    """A mapping from keys to objects and their revisions (any whole number from 0 on).

    The `fresh` most recently written objects are kept decoded, and the `read` most recently read packed ones.
    """

    def __init__(self, packing: Packing[T], *, fresh: float | None = None, read: int | None = None) -> None:
        self._packing = packing
        self._compressor = Compressor()
        # Offset of the revision: after one byte with its end, and the note.
        self._numbers = 1 if packing.note is None else 1 + _NOTE
        self._packed: dict[ObjectKey, bytes] = {}
        self._fresh: OrderedDict[ObjectKey, tuple[T, int]] = OrderedDict()
        self._read: OrderedDict[ObjectKey, T] = OrderedDict()
        self._most_fresh = FRESH if fresh is None else fresh
        self._most_read = READ if read is None else read

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._packed

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._packed)

    def get(self, key: ObjectKey) -> T | None:
        """The object, or None."""
        fresh = self._fresh.get(key)
        if fresh is not None:
            return fresh[0]
        obj = self._read.get(key)
        if obj is None:
            packed = self._packed.get(key)
            if packed is None:
                return None
            obj = self._read[key] = self._unpack(packed)
            if len(self._read) > self._most_read:
                self._read.popitem(last=False)
        return obj

    def revision(self, key: ObjectKey) -> int | None:
        """The revision of the object, None on a miss."""
        fresh = self._fresh.get(key)
        if fresh is not None:
            return fresh[1]
        packed = self._packed.get(key)
        return int.from_bytes(packed[self._numbers : packed[0]], "big") if packed is not None else None

    def note(self, key: ObjectKey) -> int:
        """The packing's note of the object; 0 on a miss."""
        if self._packing.note is None:
            return 0
        fresh = self._fresh.get(key)
        if fresh is not None:
            return self._packing.note(fresh[0])
        packed = self._packed.get(key)
        return int.from_bytes(packed[1 : self._numbers], "big") if packed is not None else 0

    def put(self, key: ObjectKey, obj: T, revision: int) -> None:
        """Store the object in place of any existing one."""
        self._packed[key] = _NOT_PACKED
        self._read.pop(key, None)
        self._fresh[key] = (obj, revision)
        self._fresh.move_to_end(key)
        if len(self._fresh) > self._most_fresh:
            self._pack_oldest()

    def drop(self, key: ObjectKey) -> None:
        """Remove the object. Raises `KeyError` on a miss."""
        del self._packed[key]
        self._fresh.pop(key, None)
        self._read.pop(key, None)

    def freeze(self) -> Callable[[], Iterator[T]]:
        """A snapshot that can be iterated repeatedly, and in another thread."""
        fresh = [obj for obj, _ in self._fresh.values()]
        packed = [entry for entry in self._packed.values() if entry]

        def objects() -> Iterator[T]:
            yield from fresh
            # Not the reader of `get`, which may be called at the same time.
            decompress = self._compressor.decompressor().decompress
            for entry in packed:
                yield self._packing.decode(decompress(entry[entry[0] :]))

        return objects

    def _pack_oldest(self) -> None:
        if self._compressor.wants_samples:
            self._compressor.learn(map(self._packing.encode, self._samples()))
        key, (obj, revision) = self._fresh.popitem(last=False)
        self._packed[key] = self._head(obj, revision) + self._compressor.compress(self._packing.encode(obj))

    def _head(self, obj: T, revision: int) -> bytes:
        length = (revision.bit_length() + 7) // 8
        note = b"" if self._packing.note is None else self._packing.note(obj).to_bytes(_NOTE, "big")
        return b"%c%b%b" % (self._numbers + length, note, revision.to_bytes(length, "big"))

    def _samples(self) -> Iterator[T]:
        return filter(self._packing.is_sample, (obj for obj, _ in self._fresh.values()))

    def _unpack(self, packed: bytes) -> T:
        return self._packing.decode(self._compressor.decompress(packed[packed[0] :]))


# With higher levels texts of 2 kB become 2 % smaller at most, and a dictionary's tables 9 times as large.
_LEVEL = 1
# A larger dictionary does not compress better, because the objects of one kind have no more in common.
_ROOM = 16 * 1024
# One large text would displace several others.
_LARGEST_SAMPLE = _ROOM // 2
# The number of a dictionary is one byte, and each dictionary takes 190 kB with its tables.
_MOST_DICTIONARIES = 32
# The number of texts to judge a dictionary by; a new one is trained after as many again at the earliest.
_JUDGED = 256
# A dictionary is outdated when texts become larger by this factor than those right after its training.
_WORSE = 1.3


class Decompressor:
    """Decompresses the output of a `Compressor`. To be used in one thread at a time."""

    def __init__(self, dictionaries: Sequence[ZstdCompressionDict]) -> None:
        # The list of the `Compressor`, which grows.
        self._dictionaries = dictionaries
        self._decompressors: dict[int, ZstdDecompressor] = {}

    def decompress(self, pressed: bytes) -> bytes:
        """Decompress a text."""
        decompressor = self._decompressors.get(pressed[0]) or self.open(pressed[0])
        return decompressor.decompress(FRAME_HEADER + pressed[1:])

    def open(self, number: int) -> ZstdDecompressor:
        """Prepare to decompress with the dictionary of that number; 0 is none."""
        dictionary = self._dictionaries[number - 1] if number else None
        decompressor = self._decompressors[number] = ZstdDecompressor(dict_data=dictionary)
        return decompressor


class Compressor:
    """Compresses and decompresses texts. `wants_samples`: `learn` would improve the compression."""

    def __init__(self) -> None:
        self._dictionaries: list[ZstdCompressionDict] = []
        self._compressor = _compressor(None)
        self._seen = 0
        self._wants_first = True
        self._expected = 0.0
        self._share = 0.0
        self._decompressor = self.decompressor()
        self.decompress = self._decompressor.decompress

    @property
    def wants_samples(self) -> bool:
        """Whether there is no dictionary yet, or the last one is outdated."""
        if self._wants_first:
            return True
        if self._seen < 2 * _JUDGED or len(self._dictionaries) == _MOST_DICTIONARIES:
            return False
        return not self._dictionaries or self._share > _WORSE * self._expected

    def learn(self, samples: Iterable[bytes]) -> None:
        """Train a dictionary on these texts and use it from now on; earlier dictionaries are kept. If the
        samples do not suffice, `wants_samples` becomes true again later."""
        self._wants_first = False
        self._seen = 0
        fitting = [text for text in samples if len(text) <= _LARGEST_SAMPLE]
        if any(fitting):
            dictionary = _dictionary(fitting)
            self._dictionaries.append(dictionary)
            self._compressor = _compressor(dictionary)
            # The dictionary's tables, shared by all readers, are made now, before other threads need them.
            self._decompressor.open(len(self._dictionaries))

    def compress(self, text: bytes) -> bytes:
        """Compress `text`."""
        pressed = self._compressor.compress(text).removeprefix(FRAME_HEADER)
        self._judge(len(pressed) / (len(text) + 1))
        return bytes((len(self._dictionaries),)) + pressed

    def decompressor(self) -> Decompressor:
        """A decompressor for another thread, which also decompresses later output."""
        return Decompressor(self._dictionaries)

    def _judge(self, share: float) -> None:
        self._seen += 1
        weight = 1 / min(self._seen, _JUDGED)
        self._share += (share - self._share) * weight
        if self._seen == _JUDGED:
            self._expected = self._share


def _compressor(dictionary: ZstdCompressionDict | None) -> ZstdCompressor:
    if dictionary is not None:
        dictionary.precompute_compress(level=_LEVEL)
    return ZstdCompressor(level=_LEVEL, dict_data=dictionary, write_dict_id=False)


def _dictionary(samples: Sequence[bytes]) -> ZstdCompressionDict:
    try:
        return train_dictionary(_ROOM, [*samples])
    except ZstdError:
        # Too few of them, or too short, for training.
        return ZstdCompressionDict(b"".join(samples)[-_ROOM:], dict_type=DICT_TYPE_RAWCONTENT)
