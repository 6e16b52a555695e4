"""Lazy attributes, computed on first access, safe in any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy_attribute(Generic[T]):  # noqa: N801 - a decorator, as `property` is
    """As `functools.cached_property`, but without a lock shared by all objects, which that has before Python
    3.12. Two threads may compute the value twice; the later one is kept."""

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
