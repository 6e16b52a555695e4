"""Both stores keep the contract."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from certwright.store.contract import Store
from certwright.store.log import MAX_BYTES
from certwright.store.memory import MemoryStore
from certwright.store.sqlite import open_sqlite
from conformance.check_store import OpenStore, StoreContract, model_machine

FEW = settings(
    max_examples=20, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


async def open_memory(*, window_bytes: int | None = None) -> Store:
    """A memory store."""
    return MemoryStore(window_bytes=window_bytes or MAX_BYTES)


def sqlite_opener(folder: Path) -> OpenStore:
    """Opens a store in a new file of the folder each time."""
    numbers = itertools.count()

    async def open_it(*, window_bytes: int | None = None) -> Store:
        return await open_sqlite(folder / f"{next(numbers)}.db", window_bytes=window_bytes or MAX_BYTES)

    return open_it


class TestMemory(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        return open_memory


class TestSqlite(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return sqlite_opener(tmp_path)


def test_the_memory_store_does_as_dictionaries_do() -> None:
    run_state_machine_as_test(model_machine(open_memory), settings=FEW)


def test_the_sqlite_store_does_as_dictionaries_do(tmp_path: Path) -> None:
    run_state_machine_as_test(model_machine(sqlite_opener(tmp_path)), settings=FEW)
