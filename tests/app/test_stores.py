"""Opening the store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from certwright.app.options import ServeOptions
from certwright.app.stores import open_store
from support.waiting import until


async def test_a_start_that_waits_for_etcd_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = ServeOptions(data_dir=tmp_path, store="etcd://127.0.0.1:1")
    opening = asyncio.create_task(open_store(options))
    await until(lambda: bool(caplog.records))
    assert caplog.messages == ["waiting for etcd://127.0.0.1:1"]
    opening.cancel()
    with suppress(asyncio.CancelledError):
        await opening
