"""Secret references: a change of a Secret enqueues the objects that have read it.

Kept in memory only, because every object is reconciled once at start and then reads its Secrets again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from certwright.kube.api.meta import ObjectKey

K = TypeVar("K", bound=Hashable)


class Dependents(Generic[K]):
    """A two-way index between Secrets and the objects that depend on them."""

    def __init__(self) -> None:
        self._by_secret: dict[ObjectKey, set[K]] = {}
        self._by_dependent: dict[K, set[ObjectKey]] = {}

    def add(self, dependent: K, secret: ObjectKey) -> None:
        """From now on `of(secret)` includes `dependent`.

        Must be called BEFORE the Secret is read: a change between reading and adding would be missed.
        """
        self._by_secret.setdefault(secret, set()).add(dependent)
        self._by_dependent.setdefault(dependent, set()).add(secret)

    def keep_only(self, dependent: K, secrets: Iterable[ObjectKey]) -> None:
        """Forget what `dependent` depended on besides `secrets`."""
        for secret in self._by_dependent.get(dependent, set()) - set(secrets):
            self._remove(dependent, secret)

    def __contains__(self, secret: ObjectKey) -> bool:
        """Whether an object depends on that Secret."""
        return secret in self._by_secret

    def of(self, secret: ObjectKey) -> tuple[K, ...]:
        """The objects that depend on that Secret."""
        return tuple(self._by_secret.get(secret, ()))

    def _remove(self, dependent: K, secret: ObjectKey) -> None:
        self._by_secret[secret].discard(dependent)
        if not self._by_secret[secret]:
            del self._by_secret[secret]
        self._by_dependent[dependent].discard(secret)
        if not self._by_dependent[dependent]:
            del self._by_dependent[dependent]
