"""A server whose data directory or store file is taken away notices it, answers 503, and ends on SIGTERM."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cli.calls import Process
from faults.server import CONFIG_MAPS, Server, config_map, running

_WITHIN_S = 60.0


def delete_directory(data: Path) -> None:
    shutil.rmtree(data)


def replace_store(data: Path) -> None:
    """By a copy, as a backup that is put back under a running server."""
    shutil.copy(data / "store.sqlite", data / "copy")
    (data / "copy").rename(data / "store.sqlite")


def empty_store(data: Path) -> None:
    """No bytes are left."""
    (data / "store.sqlite").write_bytes(b"")


@pytest.mark.parametrize("harm", [delete_directory, replace_store, empty_store])
async def test_a_store_taken_away_is_refused_and_named(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    async with running(tmp_path) as server:
        assert (await server.ask("POST", CONFIG_MAPS, config_map("before"))).status == 201
        harm(server.folder / "data")
        await _refused(server)
        for path in (CONFIG_MAPS, f"{CONFIG_MAPS}/before"):
            answer = await server.ask("GET", path)
            assert answer.status == 503, answer.text
            assert "while it was in use" in answer.json["message"]
        readiness = await server.ask("GET", "/readyz?verbose")
        assert readiness.status == 500
        assert "while it was in use" in readiness.text
        assert server.log.read_text().count("nothing is read or written any more; stop") >= 1
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.process.wait, _WITHIN_S) == 0


async def _refused(server: Server) -> None:
    """Return when writes are refused."""
    number = 0
    async with asyncio.timeout(_WITHIN_S):
        while (await server.ask("POST", CONFIG_MAPS, config_map(f"after{number}"))).status == 201:
            number += 1


def test_a_store_that_is_gone_at_the_start_is_not_begun_again(tmp_path: Path) -> None:
    words = ("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--controllers", "")
    with closing(Process(*words, cwd=tmp_path)) as process:
        assert process.line().startswith("certwright is ready at ")
    (tmp_path / "data" / "store.sqlite").unlink()
    with closing(Process(*words, cwd=tmp_path)) as process:
        ended = process.rest()
    assert ended.status == 1
    assert "store.sqlite is missing" in ended.err
    assert "certwright restore --force" in ended.err
