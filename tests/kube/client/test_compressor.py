"""Texts made smaller come back as they were, whatever they were learned from."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from certwright.kube.client.compressed import Compressor


def make_noise() -> Callable[[int], bytes]:
    """Gives so many bytes that nothing makes smaller, the same in every run."""
    return random.Random(1).randbytes


def test_texts_that_resemble_each_other_take_little() -> None:
    compress, noise = Compressor(), make_noise()
    common = noise(2_000)
    texts = [b"text %d: " % n + common + noise(20) for n in range(50)]
    compress.learn(texts[:5])
    pressed = [compress.compress(text) for text in texts]
    assert [compress.decompress(text) for text in pressed] == texts
    assert max(map(len, pressed)) < 80


def test_a_dictionary_that_no_longer_fits_is_replaced_and_old_texts_stay_readable() -> None:
    compress, noise = Compressor(), make_noise()
    old, new = noise(2_000), noise(2_000)
    wishes = [compress.wants_samples]
    compress.learn([old])
    first = compress.compress(old)
    for text in (old, new):
        for _ in range(600):
            compress.compress(text)
        wishes.append(compress.wants_samples)
    compress.learn([new])
    wishes.append(compress.wants_samples)
    assert wishes == [True, False, True, False]
    assert len(compress.compress(new)) < 100
    assert compress.decompress(first) == old


@given(st.lists(st.binary(max_size=200)), st.lists(st.binary(max_size=200)), st.integers(1, 300))
@example([b"same"] * 20, [b"same"], 1)
@example([b""] * 20, [b""], 1)
@example([make_noise()(100_000)], [b"short"], 1)
def test_any_text_comes_back_whatever_was_learned(
    samples: list[bytes], texts: list[bytes], times: int
) -> None:
    compress = Compressor()
    samples = [sample * times for sample in samples]
    pressed = [compress.compress(text) for text in texts]
    compress.learn(samples)
    pressed += [compress.compress(text) for text in (*texts, *samples)]
    for decompress in (compress.decompress, compress.decompressor().decompress):
        assert [decompress(text) for text in pressed] == [*texts, *texts, *samples]


def test_where_there_is_nothing_to_learn_from_samples_are_wanted_later() -> None:
    compress = Compressor()
    compress.learn([])
    wishes = []
    for _ in range(600):
        wishes.append(compress.wants_samples)
        compress.compress(b"text")
    assert (wishes[0], wishes[-1]) == (False, True)


def test_the_number_of_dictionaries_is_limited() -> None:
    compress, noise, learned = Compressor(), make_noise(), 0
    while compress.wants_samples and learned < 100:
        learned += 1
        easy, hard = noise(500), [noise(500) for _ in range(600)]
        compress.learn([easy] * 10)
        for text in [easy] * 300 + hard:
            compress.compress(text)
    assert learned == 32
    assert compress.decompress(compress.compress(b"text")) == b"text"
