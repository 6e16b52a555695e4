"""Who is told of which writes."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from certwright.kube.api import naming
from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.model.backend import Backend, Namespaces
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.store.contract import Encode, Key, Row
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import TestClock
from certwright.kube.util.tasks import TaskSet


class Listener:
    """An observer that notes what it is told, together with others."""

    def __init__(self, name: str, calls: list[str], *, observed_buckets: Collection[str] | None) -> None:
        self._name = name
        self._calls = calls
        self.observed_buckets = observed_buckets

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Note a write."""
        self._calls.append(
            f"{self._name}: {'' if previous is None else 're'}wrote {definition.plural} {row.key.name}"
        )

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """Note a deletion."""
        self._calls.append(f"{self._name}: removed {definition.plural} {row.key.name}")


@pytest.fixture
def backend() -> Backend:
    """One over an empty store, of which nobody is told anything yet."""
    store, clock = MemoryStore(), TestClock()
    namespaces = Namespaces(store)
    return Backend(store, make_registry(clock), clock, namespaces, naming.random_suffix, TaskSet())


def saying(text: str) -> Encode:
    """A row with that text as its body."""
    return lambda revision: (b"%d" % revision, text.encode())


async def write(backend: Backend, plural: str, name: str) -> Row:
    """Create an object."""
    definition = backend.registry.by_resource("", plural)
    assert definition is not None
    return await backend.put(definition, Key(definition.bucket, "ns", name), saying(name), previous=None)


async def test_observers_are_told_of_what_they_hear_of_in_the_order_in_which_they_came(
    backend: Backend,
) -> None:
    calls: list[str] = []
    backend.observe(
        Listener("all", calls, observed_buckets=None),
        Listener("secrets", calls, observed_buckets=("secrets",)),
    )
    await write(backend, "configmaps", "a")
    row = await write(backend, "secrets", "b")
    definition = backend.registry.by_resource("", "secrets")
    assert definition is not None
    row = await backend.put(definition, row.key, saying("c"), previous=row)
    await backend.delete(definition, row, saying("d"))
    assert calls == [
        "all: wrote configmaps a",
        "all: wrote secrets b",
        "secrets: wrote secrets b",
        "all: rewrote secrets b",
        "secrets: rewrote secrets b",
        "all: removed secrets b",
        "secrets: removed secrets b",
    ]


async def test_an_observer_that_comes_later_is_told_of_what_follows(backend: Backend) -> None:
    calls: list[str] = []
    backend.observe(Listener("first", calls, observed_buckets=None))
    await write(backend, "secrets", "a")
    backend.observe(Listener("later", calls, observed_buckets=("secrets",)))
    await write(backend, "secrets", "b")
    assert calls == ["first: wrote secrets a", "first: wrote secrets b", "later: wrote secrets b"]
