"""Results remembered: what is worked out from texts that come again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K", bound=str | bytes)
T = TypeVar("T")


def remembering(*, most: int, longest: int) -> Callable[[Callable[[K], T]], Callable[[K], T]]:
    """Of a pure function of one text: remember what it returns, not what it raises.

    `most`: how many results; when there are as many, all are forgotten. `longest`: in characters or bytes;
    the results of longer texts are not kept, so that nobody fills the memory with what he sends.
    Any thread may call.
    """

    def decorate(function: Callable[[K], T]) -> Callable[[K], T]:
        # To find a result calls no code of Python's.
        return _Memo(function, most, longest).__getitem__

    return decorate


class _Memo(dict[K, T]):
    """The results by their texts; what is not there is worked out."""

    def __init__(self, function: Callable[[K], T], most: int, longest: int) -> None:
        super().__init__()
        self._function = function
        self._most = most
        self._longest = longest

    def __missing__(self, text: K) -> T:
        result = self._function(text)
        if len(text) <= self._longest:
            if len(self) >= self._most:
                self.clear()
            self[text] = result
        return result
