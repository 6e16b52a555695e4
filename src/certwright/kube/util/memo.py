"""Memoization of functions of a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K", bound=str | bytes)
T = TypeVar("T")


def remembering(*, most: int, longest: int) -> Callable[[Callable[[K], T]], Callable[[K], T]]:
    """Decorator for a pure function of one text: cache its results, not its exceptions.

    `most`: the number of results; when it is reached, all are dropped. `longest`: in characters or bytes; the
    results of longer texts are not cached, so that a client cannot fill the memory. Any thread may call.
    """

    def decorate(function: Callable[[K], T]) -> Callable[[K], T]:
        # A cache hit runs no Python code.
        return _Memo(function, most, longest).__getitem__

    return decorate


class _Memo(dict[K, T]):
    """The results by text; a missing one is computed."""

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
