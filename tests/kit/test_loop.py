"""The event loop that a process runs on."""

from __future__ import annotations

import asyncio
import sys

import pytest

from certwright.kit import event_loop


async def _loops_module() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_it_is_uvloop_where_that_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert event_loop.run(_loops_module()) == "uvloop"


def test_it_is_pythons_own_where_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(_loops_module()) == "asyncio"
