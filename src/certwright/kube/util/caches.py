"""Caches: LRU, by time, of a function's results, of an attribute."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
Text = TypeVar("Text", bound=str | bytes)
Clock = Callable[[], float]

_MANY = 1024  # answers, from which on `Recent` removes those that are out of date


class Lru(Generic[K, V]):
    """A cache of the `size` most recently used values."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        """The number of cached values."""
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value, or None."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def drop(self, key: K) -> None:
        """Remove the value if present."""
        self._values.pop(key, None)

    def put(self, key: K, value: V) -> V:
        """Store the value and return it."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)
        return value


class Recent(Generic[K, T]):
    """Caches an answer for `seconds`, which may depend on the answer. An exception is not cached: all current
    waiters get it, and later callers ask again. `now` is a monotonic clock in seconds."""

    def __init__(self, seconds: float | Callable[[T], float], *, now: Clock = time.monotonic) -> None:
        self._seconds = seconds if callable(seconds) else lambda _: seconds
        self._now = now
        self._answers: dict[K, tuple[float, T]] = {}
        self._in_flight: dict[K, asyncio.Future[T]] = {}

    def __len__(self) -> int:
        """The number of cached answers."""
        return len(self._answers)

    async def get(self, key: K, ask: Callable[[], Awaitable[T]]) -> T:
        """The cached answer, or what `ask()` returns or raises."""
        cached = self._answers.get(key)
        if cached is not None and self._now() < cached[0]:
            return cached[1]
        if key not in self._in_flight:
            self._in_flight[key] = asyncio.ensure_future(self._fetch(key, ask))
        # A cancelled caller must not cancel the request for the others.
        return await asyncio.shield(self._in_flight[key])

    def forget(self, key: K) -> None:
        """Remove a cached answer if present."""
        self._answers.pop(key, None)

    async def _fetch(self, key: K, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            answer = await ask()
        finally:
            del self._in_flight[key]
        now = self._now()
        if len(self._answers) >= _MANY:
            self._answers = {other: current for other, current in self._answers.items() if now < current[0]}
        self._answers[key] = (now + self._seconds(answer), answer)
        return answer


class lazy_attribute(Generic[T]):  # noqa: N801 - a decorator, as `property` is
    """As `functools.cached_property` from Python 3.12 on: without a lock shared by all objects. Two threads
    may compute the value twice; the later value is kept."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_attribute[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> lazy_attribute[T] | T:
        if instance is None:
            return self
        # From now on attribute lookup finds the value before this descriptor.
        made = instance.__dict__[self._name] = self._make(instance)
        return made

    def is_made(self, instance: object) -> bool:
        """Whether the value has been computed."""
        return self._name in instance.__dict__


def remembering(*, most: int, longest: int) -> Callable[[Callable[[Text], T]], Callable[[Text], T]]:
    """Decorator for a pure function of one text: cache its results, not its exceptions.

    `most`: the number of results; when it is reached, all are dropped. `longest`: in characters or bytes; the
    results of longer texts are not cached, so that a client cannot fill the memory. Any thread may call.
    """

    def decorate(function: Callable[[Text], T]) -> Callable[[Text], T]:
        # A cache hit runs no Python code.
        return _Memo(function, most, longest).__getitem__

    return decorate


class _Memo(dict[Text, T]):
    """The results by text; a missing one is computed."""

    def __init__(self, function: Callable[[Text], T], most: int, longest: int) -> None:
        super().__init__()
        self._function = function
        self._most = most
        self._longest = longest

    def __missing__(self, text: Text) -> T:
        result = self._function(text)
        if len(text) <= self._longest:
            if len(self) >= self._most:
                self.clear()
            self[text] = result
        return result
