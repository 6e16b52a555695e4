"""Texts made smaller come back as they were, whatever they were learned from."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from certwright.kube.client.compressed import Press


def make_noise() -> Callable[[int], bytes]:
    """Gives so many bytes that nothing makes smaller, the same in every run."""
    return random.Random(1).randbytes


def test_texts_that_resemble_each_other_take_little() -> None:
    press, noise = Press(), make_noise()
    common = noise(2_000)
    texts = [b"text %d: " % n + common + noise(20) for n in range(50)]
    press.learn(texts[:5])
    pressed = [press.press(text) for text in texts]
    assert [press.restore(text) for text in pressed] == texts
    assert max(map(len, pressed)) < 80


def test_a_dictionary_that_no_longer_fits_is_replaced_and_old_texts_stay_readable() -> None:
    press, noise = Press(), make_noise()
    old, new = noise(2_000), noise(2_000)
    wishes = [press.wants_samples]
    press.learn([old])
    first = press.press(old)
    for text in (old, new):
        for _ in range(600):
            press.press(text)
        wishes.append(press.wants_samples)
    press.learn([new])
    wishes.append(press.wants_samples)
    assert wishes == [True, False, True, False]
    assert len(press.press(new)) < 100
    assert press.restore(first) == old


@given(st.lists(st.binary(max_size=200)), st.lists(st.binary(max_size=200)), st.integers(1, 300))
@example([b"same"] * 20, [b"same"], 1)
@example([b""] * 20, [b""], 1)
@example([make_noise()(100_000)], [b"short"], 1)
def test_any_text_comes_back_whatever_was_learned(
    samples: list[bytes], texts: list[bytes], times: int
) -> None:
    press = Press()
    samples = [sample * times for sample in samples]
    pressed = [press.press(text) for text in texts]
    press.learn(samples)
    pressed += [press.press(text) for text in (*texts, *samples)]
    for restore in (press.restore, press.reader().restore):
        assert [restore(text) for text in pressed] == [*texts, *texts, *samples]


def test_where_there_is_nothing_to_learn_from_samples_are_wanted_later() -> None:
    press = Press()
    press.learn([])
    wishes = []
    for _ in range(600):
        wishes.append(press.wants_samples)
        press.press(b"text")
    assert (wishes[0], wishes[-1]) == (False, True)


def test_the_number_of_dictionaries_is_limited() -> None:
    press, noise, learned = Press(), make_noise(), 0
    while press.wants_samples and learned < 100:
        learned += 1
        easy, hard = noise(500), [noise(500) for _ in range(600)]
        press.learn([easy] * 10)
        for text in [easy] * 300 + hard:
            press.press(text)
    assert learned == 32
    assert press.restore(press.press(b"text")) == b"text"
