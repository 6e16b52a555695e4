"""The command of --on-change, with a real shell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from certwright.cli.exporting import Change, OnChange
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.tasks import TaskSet
from support.waiting import until


class FastClock(SystemClock):
    """The system clock, a hundred times as fast for those who sleep."""

    def monotonic(self) -> float:
        return super().monotonic() * 100

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 100)


@asynccontextmanager
async def running(command: str, *, timeout_s: float = 10.0) -> AsyncIterator[OnChange]:
    on_change, tasks = OnChange(command, FastClock(), timeout_s=timeout_s), TaskSet()
    tasks.start(on_change.run(), name="on change")
    try:
        yield on_change
    finally:
        await tasks.close()


def change(folder: Path, done: list[str], *, version: str = "v1", name: str = "web") -> Change:
    return Change(
        key=ObjectKey("shop", name), folder=folder, version=version, mark_done=lambda: done.append(version)
    )


async def test_it_runs_once_for_each_certificate_with_its_name_and_folder(tmp_path: Path) -> None:
    done: list[str] = []
    async with running(f'echo "$CERTWRIGHT_CERTIFICATE $CERTWRIGHT_DIR" >> {tmp_path}/log') as on_change:
        for name in ("web", "api"):
            for _ in range(3):
                on_change.add(change(tmp_path / name, done, name=name))
        assert await on_change.wait_tried()
    assert sorted((tmp_path / "log").read_text().splitlines()) == [
        f"shop/api {tmp_path}/api",
        f"shop/web {tmp_path}/web",
    ]
    assert done == ["v1", "v1"]


async def test_versions_in_quick_succession_are_one_run(tmp_path: Path) -> None:
    done: list[str] = []
    async with running(f"echo run >> {tmp_path}/log") as on_change:
        for version in ("v1", "v2", "v3"):
            on_change.add(change(tmp_path, done, version=version))
        assert await on_change.wait_tried()
    assert ((tmp_path / "log").read_text(), done) == ("run\n", ["v3"])


async def test_a_failure_is_logged_and_repeated_until_it_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []
    command = f'echo x >> {tmp_path}/log; echo "no such unit" >&2; test $(wc -l < {tmp_path}/log) -ge 3'
    async with running(command) as on_change:
        on_change.add(change(tmp_path, done))
        assert not await on_change.wait_tried()
        await until(lambda: bool(done))
    assert (tmp_path / "log").read_text() == "x\nx\nx\n"
    failures = [record for record in caplog.records if record.levelname == "WARNING"]
    assert {record.getMessage() for record in failures} == {"--on-change command failed"}
    values = [record.__dict__["values"] for record in failures]
    assert [(value["certificate"], value["cause"]) for value in values] == [
        ("shop/web", "it ended with status 1: no such unit")
    ] * 2
    waits = [
        value["nextAttempt"].timestamp() - record.created
        for record, value in zip(failures, values, strict=True)
    ]
    assert [round(wait_s) for wait_s in waits] == [1, 2]


async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    done: list[str] = []
    async with running(f"(sleep 1; touch {tmp_path}/late) & wait", timeout_s=0.1) as on_change:
        on_change.add(change(tmp_path, done))
        assert not await on_change.wait_tried()
    await asyncio.sleep(1.1)
    assert (done, (tmp_path / "late").exists()) == ([], False)


async def test_a_program_that_the_command_starts_may_go_on(tmp_path: Path) -> None:
    done: list[str] = []
    async with running("sleep 3 & exit 0", timeout_s=2) as on_change:
        on_change.add(change(tmp_path, done))
        assert await on_change.wait_tried()
    assert done == ["v1"]
