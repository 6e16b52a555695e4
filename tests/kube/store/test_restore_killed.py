"""A restore that is killed leaves the old store, or one that no server starts on; and it can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from certwright.kube.store.contract import Damaged, Unavailable
from certwright.kube.store.etcd.backup import refilling
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.store import open_etcd
from certwright.kube.store.sqlite.backup import replacing
from conformance.store_words import A, saying
from kube.store.opening import opened, opened_file
from kube.store.restoring_child import NEW
from support.etcd import Etcd
from support.sealed import Keys, seal_with

CHILD = Path(__file__).with_name("restoring_child.py")
PREFIX = "/killed"


def kill_in_the_middle(kind: str, place: str) -> None:
    """Let a process restore half, and kill it with SIGKILL."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(CHILD), kind, place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half\n"
        child.kill()


async def test_in_etcd_no_server_starts_until_it_is_repeated(etcd: Etcd) -> None:
    access, keys = Access((etcd.member,), patience_s=120.0), Keys()
    async with opened(access, prefix=PREFIX) as old:
        await old.put(A, saying("old"))
    kill_in_the_middle("etcd", etcd.member)
    with pytest.raises(Damaged, match="restore it again, with --force"):
        await open_etcd(access, seal=seal_with(keys), prefix=PREFIX, compact_every_s=0)
    with pytest.raises(Unavailable, match="--force replaces it"):
        async with refilling(access, PREFIX, seal_with(keys), force=False):
            pass
    async with refilling(access, PREFIX, seal_with(keys), force=True) as filling:
        await filling.add(NEW[:100])
    async with opened(access, seal=seal_with(keys), prefix=PREFIX) as store:
        assert [row.key for row in (await store.list("things")).rows] == sorted(key for key, _ in NEW[:100])


async def test_in_sqlite_the_old_store_is_untouched(tmp_path: Path) -> None:
    path, seal = tmp_path / "store.sqlite", seal_with(Keys())
    async with opened_file(path, seal=seal) as old:
        await old.put(A, saying("old"))
    kill_in_the_middle("sqlite", str(path))
    async with opened_file(path, seal=seal) as store:
        assert [row.key for row in (await store.list("things")).rows] == [A]
    async with replacing(path, seal, begin_at=1_000, force=True) as new:
        for key, encode in NEW[:100]:
            await new.put(key, encode)
    async with opened_file(path, seal=seal) as store:
        assert await store.count("things") == 100
    assert not list(tmp_path.glob("*restoring*"))  # noqa: ASYNC240 - nothing else runs
