"""Results of functions of texts, remembered."""

from __future__ import annotations

import pytest

from certwright.kube.util.caches import remembering


class Counted:
    """A function that notes what it is asked; remembered are three results, of up to five characters."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.remembered = remembering(most=3, longest=5)(self._shout)

    def _shout(self, text: str) -> str:
        self.asked.append(text)
        if not text:
            raise ValueError("nothing to say")
        return text.upper()


def test_a_result_is_worked_out_once() -> None:
    counted = Counted()
    assert [counted.remembered("hello") for _ in range(3)] == ["HELLO"] * 3
    assert counted.asked == ["hello"]


def test_the_result_of_a_long_text_is_not_kept() -> None:
    counted = Counted()
    assert [counted.remembered("hello!") for _ in range(2)] == ["HELLO!"] * 2
    assert counted.asked == ["hello!"] * 2


def test_what_is_raised_is_not_remembered() -> None:
    counted = Counted()
    for _ in range(2):
        with pytest.raises(ValueError, match="nothing to say"):
            counted.remembered("")
    assert counted.asked == ["", ""]


def test_there_are_never_more_results_than_said() -> None:
    counted = Counted()
    for text in "abcd":
        counted.remembered(text)
    counted.remembered("d")
    assert counted.asked == list("abcd")
    counted.remembered("a")
    assert counted.asked == list("abcda")
