"""Small texts that resemble each other, made smaller: Zstandard with dictionaries learned from such texts.

What most of them have in common (field names, labels, CA certificates) is in the dictionary; what is left of
each is little more than what nobody could guess: UIDs, keys, signatures.

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
# Larger ones make nothing smaller: there is not more that the objects of one kind have in common.
_ROOM = 16 * 1024
# One large text would take the room of several others.
_LARGEST_SAMPLE = _ROOM // 2
# The number of a dictionary is one byte, and what belongs to it takes 190 kB.
_MOST_DICTIONARIES = 32
# So many texts tell how well a dictionary does; not before as many again is another one made.
_JUDGED = 256
# A dictionary is outdated when texts take up so much more than those that followed it.
_WORSE = 1.3


class Reader:
    """Restores what a `Press` has pressed. To be used in one thread at a time."""

    def __init__(self, dictionaries: Sequence[ZstdCompressionDict]) -> None:
        # The list of the press, which grows.
        self._dictionaries = dictionaries
        self._decompressors: dict[int, ZstdDecompressor] = {}

    def restore(self, pressed: bytes) -> bytes:
        """What was pressed."""
        decompressor = self._decompressors.get(pressed[0]) or self.open(pressed[0])
        return decompressor.decompress(FRAME_HEADER + pressed[1:])

    def open(self, number: int) -> ZstdDecompressor:
        """Be ready for what is pressed with the dictionary of that number; 0 is none."""
        dictionary = self._dictionaries[number - 1] if number else None
        decompressor = self._decompressors[number] = ZstdDecompressor(dict_data=dictionary)
        return decompressor


class Press:
    """Presses texts and restores them. `wants_samples`: it would do better after `learn`."""

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
        """Whether there is no dictionary yet, or the last one does no longer fit."""
        if self._wants_first:
            return True
        if self._seen < 2 * _JUDGED or len(self._dictionaries) == _MOST_DICTIONARIES:
            return False
        return not self._dictionaries or self._share > _WORSE * self._expected

    def learn(self, samples: Iterable[bytes]) -> None:
        """Use a dictionary made of these texts from now on. Those of before are kept. Where there is nothing
        to learn from, samples are wanted again later."""
        self._wants_first = False
        self._seen = 0
        fitting = [text for text in samples if len(text) <= _LARGEST_SAMPLE]
        if any(fitting):
            dictionary = _dictionary(fitting)
            self._dictionaries.append(dictionary)
            self._compressor = _compressor(dictionary)
            # What all readers share of a dictionary is made now, before other threads need it.
            self._reader.open(len(self._dictionaries))

    def press(self, text: bytes) -> bytes:
        """`text` in fewer bytes."""
        pressed = self._compressor.compress(text).removeprefix(FRAME_HEADER)
        self._judge(len(pressed) / (len(text) + 1))
        return bytes((len(self._dictionaries),)) + pressed

    def reader(self) -> Reader:
        """One for another thread, which restores what is pressed later, too."""
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
        # Too few of them, or too short, to tell what is frequent.
        return ZstdCompressionDict(b"".join(samples)[-_ROOM:], dict_type=DICT_TYPE_RAWCONTENT)
