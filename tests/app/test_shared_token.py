"""The administrator's token of two servers on one store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path

from certwright.app.shared_files import follow_token, share
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import TestClock
from support.waiting import turns, until


def fill(folder: Path) -> None:
    for name in ("ca.crt", "ca.key", "sa.key", "admin.token"):
        (folder / "pki" / name).write_bytes(b"old" if name == "admin.token" else b"x")


async def test_a_token_that_is_replaced_at_one_server_is_that_of_the_other(tmp_path: Path) -> None:
    store, clock = MemoryStore(), TestClock()
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        (folder / "pki").mkdir(parents=True)
        await share(store, folder, partial(fill, folder))
        (folder / "kubeconfig").write_text("token: old")
    following = [asyncio.ensure_future(follow_token(store, folder, clock)) for folder in folders]
    # Both have read the former token.
    await until(lambda: len(clock._sleepers) == 2)
    (folders[0] / "pki" / "admin.token").write_text("new")

    def is_followed() -> bool:
        clock.advance(timedelta(seconds=31))
        return (folders[1] / "kubeconfig").read_text() == "token: new"

    await until(is_followed)
    assert (folders[1] / "pki" / "admin.token").read_text() == "new"
    for task in following:
        task.cancel()
    # The next start finds no difference.
    for folder in folders:
        await share(store, folder, lambda: None)
    await turns()
