"""The disk below a server fills up, breaks, is read-only, or another program locks the database: writers are
told in a sentence, readiness says so, reads go on, and when the cause is gone so is the trouble. Where the
data directory or the store's file is taken away, the server answers 503, and ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cli.calls import Process
from faults.disks import file_disk, memory_disk
from faults.server import CONFIG_MAPS, Answer, Server, config_map, running

_WITHIN_S = 150.0


async def write_until_refused(server: Server, written: set[str], *, size: int = 200_000) -> Answer:
    """Create objects until one is refused."""
    for number in itertools.count(len(written)):
        name = f"filler{number}"
        answer = await server.ask("POST", CONFIG_MAPS, config_map(name, text="x" * size))
        if answer.status != 201:
            return answer
        written.add(name)
    raise AssertionError("unreachable")


async def check_refusal(server: Server, answer: Answer, words: str) -> None:
    """A 503 that says what is wrong; alive, not ready, and still readable."""
    assert answer.status == 503, answer.text
    status = answer.json
    assert (status["kind"], status["reason"]) == ("Status", "ServiceUnavailable")
    assert words in status["message"], status["message"]
    assert "Traceback" not in server.log.read_text()
    readiness = await server.ask("GET", "/readyz?verbose")
    assert readiness.status == 500
    assert "[-]etcd-readiness failed" in readiness.text
    why = await server.ask("GET", "/readyz/etcd-readiness")
    assert words in why.text, why.text
    assert (await server.ask("GET", "/livez")).status == 200


async def check_recovery(server: Server, written: set[str]) -> None:
    """Ready again without a restart, and nothing that was acknowledged is lost."""
    async with asyncio.timeout(_WITHIN_S):
        while (await server.ask("GET", "/readyz")).status != 200:  # noqa: ASYNC110 - bounded by the timeout
            await asyncio.sleep(0.05)
    made = await server.ask("POST", CONFIG_MAPS, config_map("after", text="x" * 100_000))
    assert made.status == 201, made.text
    assert names(await server.ask("GET", CONFIG_MAPS)) == written | {"after"}
    server.kill()
    await server.start()
    assert names(await server.ask("GET", CONFIG_MAPS)) == written | {"after"}


def names(answer: Answer) -> set[str]:
    assert answer.status == 200, answer.text
    return {item["metadata"]["name"] for item in answer.json["items"]} - {"kube-root-ca.crt"}


async def test_a_full_disk_is_told_until_there_is_room(tmp_path: Path) -> None:
    written: set[str] = set()
    with memory_disk(tmp_path, megabytes=40) as disk:
        async with running(tmp_path, "--store", str(disk.path / "store.sqlite")) as server:
            disk.fill()
            answer = await write_until_refused(server, written)
            await check_refusal(server, answer, f"the disk that holds {disk.path}/store.sqlite is full")
            assert names(await server.ask("GET", CONFIG_MAPS)) == written
            disk.clear()
            await check_recovery(server, written)


async def test_a_file_that_may_not_grow_is_told_until_it_may(tmp_path: Path) -> None:
    written: set[str] = set()
    async with running(tmp_path) as server:
        assert server.process is not None
        pid, before = server.process.pid, resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (9 << 20, before[1]))
        answer = await write_until_refused(server, written)
        await check_refusal(server, answer, "store.sqlite cannot be read or written")
        assert names(await server.ask("GET", CONFIG_MAPS)) == written
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        await check_recovery(server, written)


async def test_a_database_that_somebody_else_locks_is_told_until_it_is_free(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        (store,) = (tmp_path / "data").glob("*.sqlite")
        with closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            answer = await server.ask("POST", CONFIG_MAPS, config_map("refused"))
            await check_refusal(server, answer, "is locked by another program")
            assert names(await server.ask("GET", CONFIG_MAPS)) == set()
            other.execute("ROLLBACK")
            await check_recovery(server, set())


async def test_a_disk_that_breaks_is_told_and_reads_go_on(tmp_path: Path) -> None:
    with file_disk(tmp_path, megabytes=64) as disk:
        async with running(tmp_path, "--store", str(disk.path / "store.sqlite")) as server:
            assert (await server.ask("POST", CONFIG_MAPS, config_map("before"))).status == 201
            disk.break_down()
            answer = await server.ask("POST", CONFIG_MAPS, config_map("refused"))
            await check_refusal(server, answer, "store.sqlite")
            assert names(await server.ask("GET", CONFIG_MAPS)) == {"before"}


def test_a_read_only_disk_is_told_at_the_start(tmp_path: Path) -> None:
    with memory_disk(tmp_path, megabytes=40) as disk:
        words = ("serve", "--data-dir", str(disk.path / "data"), "--listen", "127.0.0.1:0")
        with closing(Process(*words, cwd=tmp_path)) as process:
            assert process.line().startswith("certwright is ready at ")
        disk.remount("ro")
        with closing(Process(*words, cwd=tmp_path)) as process:
            ended = process.rest()
        assert ended.status != 0
        assert "Read-only file system" in ended.err
        assert "Traceback" not in ended.err
        disk.remount("rw")
        with closing(Process(*words, cwd=tmp_path)) as process:
            assert process.line().startswith("certwright is ready at ")


_NOTICED_WITHIN_S = 60.0


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
        assert await asyncio.to_thread(server.process.wait, _NOTICED_WITHIN_S) == 0


async def _refused(server: Server) -> None:
    """Return when writes are refused."""
    number = 0
    async with asyncio.timeout(_NOTICED_WITHIN_S):
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
