"""Zstandard compression of small similar texts, with dictionaries trained on such texts.

The dictionary has what most of them share (field names, labels, CA certificates); the rest of each is little
more than its unpredictable parts: UIDs, keys, signatures.

Source: RFC 8878 (Zstandard), §5 (dictionaries); zstd's manual, `ZDICT_trainFromBuffer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zstandard import (
    DICT_TYPE_RAWCONTENT,
    FRAME_HEADER,
    ZstdCompressionDict,
    ZstdCompressor,
    ZstdDecompressor,
    ZstdError,
    train_dictionary,
)

# With higher levels texts of 2 kB become 2 % smaller at most, and a dictionary's tables 9 times as large.
_LEVEL = 1
# A larger dictionary does not compress better, because the objects of one kind have no more in common.
_ROOM = 16 * 1024
# One large text would displace several others.
_LARGEST_SAMPLE = _ROOM // 2
# The number of a dictionary is one byte, and each dictionary takes 190 kB with its tables.
_MOST_DICTIONARIES = 32
# Number of texts by which a dictionary is judged; another one is made after as many again at the earliest.
_JUDGED = 256
# A dictionary is outdated when texts become larger by this factor than those right after its training.
_WORSE = 1.3


class Reader:
    """Decompresses the output of a `Press`. To be used in one thread at a time."""

    def __init__(self, dictionaries: Sequence[ZstdCompressionDict]) -> None:
        # The list of the `Press`, which grows.
        self._dictionaries = dictionaries
        self._decompressors: dict[int, ZstdDecompressor] = {}

    def restore(self, pressed: bytes) -> bytes:
        """Decompress a text."""
        decompressor = self._decompressors.get(pressed[0]) or self.open(pressed[0])
        return decompressor.decompress(FRAME_HEADER + pressed[1:])

    def open(self, number: int) -> ZstdDecompressor:
        """Prepare to decompress with the dictionary of that number; 0 is none."""
        dictionary = self._dictionaries[number - 1] if number else None
        decompressor = self._decompressors[number] = ZstdDecompressor(dict_data=dictionary)
        return decompressor


class Press:
    """Compresses and decompresses texts. `wants_samples`: it would compress better after `learn`."""

    def __init__(self) -> None:
        self._dictionaries: list[ZstdCompressionDict] = []
        self._compressor = _compressor(None)
        self._seen = 0
        self._wants_first = True
        self._expected = 0.0
        self._share = 0.0
        self._reader = self.reader()
        self.restore = self._reader.restore

    @property
    def wants_samples(self) -> bool:
        """Whether there is no dictionary yet, or the last one is outdated."""
        if self._wants_first:
            return True
        if self._seen < 2 * _JUDGED or len(self._dictionaries) == _MOST_DICTIONARIES:
            return False
        return not self._dictionaries or self._share > _WORSE * self._expected

    def learn(self, samples: Iterable[bytes]) -> None:
        """Train a dictionary on these texts and use it from now on. Earlier ones are kept. If the samples do
        not suffice, `wants_samples` becomes true again later."""
        self._wants_first = False
        self._seen = 0
        fitting = [text for text in samples if len(text) <= _LARGEST_SAMPLE]
        if any(fitting):
            dictionary = _dictionary(fitting)
            self._dictionaries.append(dictionary)
            self._compressor = _compressor(dictionary)
            # The dictionary's tables, shared by all readers, are made now, before other threads need them.
            self._reader.open(len(self._dictionaries))

    def press(self, text: bytes) -> bytes:
        """Compress `text`."""
        pressed = self._compressor.compress(text).removeprefix(FRAME_HEADER)
        self._judge(len(pressed) / (len(text) + 1))
        return bytes((len(self._dictionaries),)) + pressed

    def reader(self) -> Reader:
        """A reader for another thread, which also decompresses later output."""
        return Reader(self._dictionaries)

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
