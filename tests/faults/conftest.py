"""The stores that a server process can be started on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.etcd import running_etcd


@pytest.fixture(params=["memory", "SQLite", "etcd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """The flags of `serve` for each store."""
    with ExitStack() as stack:
        if request.param == "etcd":
            yield ("--store", stack.enter_context(running_etcd(tmp_path)).url)
        else:
            yield ("--store", "memory") if request.param == "memory" else ()
