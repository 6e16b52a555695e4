"""Small texts that resemble each other, made smaller: deflate with dictionaries learned from such texts.

What most of them have in common (field names, labels, CA certificates) is in the dictionary; what is left of
each is little more than what nobody could guess: UIDs, keys, signatures.

Source: RFC 1951 (deflate); zlib's manual, `deflateSetDictionary`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

# Deflate can refer back to 32 kB and no more; a little of that is needed for its own block.
_ROOM = 31 * 1024
# As many samples are looked at for a dictionary; each look costs some 20 µs for each sample that is chosen.
_SAMPLES = 64
# The number of a dictionary is one byte, and its primed machines take about 300 kB.
_MOST_DICTIONARIES = 32
# So many texts tell how well a dictionary does; not before as many again is another one made.
_JUDGED = 256
# A dictionary is outdated when texts take up so much more than those that followed it.
_WORSE = 1.3


class Press:
    """Presses texts and restores them. `wants_samples`: it would do better after `learn`."""

    def __init__(self) -> None:
        self._deflater = _deflater(b"")
        self._inflaters = [zlib.decompressobj(-zlib.MAX_WBITS)]
        self._seen = 0
        self._expected = 0.0
        self._share = 0.0

    @property
    def wants_samples(self) -> bool:
        """Whether there is no dictionary yet, or the last one does no longer fit."""
        if len(self._inflaters) == 1:
            return True
        if self._seen < 2 * _JUDGED or len(self._inflaters) > _MOST_DICTIONARIES:
            return False
        return self._share > _WORSE * self._expected

    def learn(self, samples: Sequence[bytes]) -> None:
        """Use a dictionary made of some of these texts from now on. Those of before are kept."""
        dictionary = _dictionary(samples[:: max(len(samples) // _SAMPLES, 1)])
        self._deflater = _deflater(dictionary)
        self._inflaters.append(zlib.decompressobj(-zlib.MAX_WBITS, zdict=dictionary))
        self._seen = 0

    def press(self, text: bytes) -> bytes:
        """`text` in fewer bytes."""
        # A copy of one that has read its dictionary: reading it anew would take longer than the text does.
        pressed = _run(self._deflater, text)
        self._judge(len(pressed) / (len(text) + 1))
        return bytes((len(self._inflaters) - 1,)) + pressed

    def restore(self, pressed: bytes) -> bytes:
        """What was pressed. May be called in another thread."""
        inflater = self._inflaters[pressed[0]].copy()
        return inflater.decompress(memoryview(pressed)[1:])

    def _judge(self, share: float) -> None:
        self._seen += 1
        weight = 1 / min(self._seen, _JUDGED)
        self._share += (share - self._share) * weight
        if self._seen == _JUDGED:
            self._expected = self._share


def _deflater(dictionary: bytes) -> zlib._Compress:
    return zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION,
        zlib.DEFLATED,
        -zlib.MAX_WBITS,
        zlib.DEF_MEM_LEVEL,
        zlib.Z_DEFAULT_STRATEGY,
        dictionary,
    )


def _run(deflater: zlib._Compress, text: bytes) -> bytes:
    machine = deflater.copy()
    return machine.compress(text) + machine.flush()


def _dictionary(samples: Sequence[bytes]) -> bytes:
    """The samples that are least like those chosen before them, as many as there is room for."""
    # One large text would take the room of several others.
    chosen, left = b"", [text for text in samples if len(text) <= _ROOM // 4]
    while left:
        deflater = _deflater(chosen)
        worst = max(left, key=lambda text: len(_run(deflater, text)))
        left.remove(worst)
        if len(chosen) + len(worst) > _ROOM:
            break
        chosen = worst + chosen
    return chosen
