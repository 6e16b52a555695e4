"""Two installations on one etcd: a named one is not joined by mistake."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from certwright.kube.store.contract import Damaged
from certwright.kube.store.etcd.backup import refilling
from certwright.kube.store.etcd.client import Access
from certwright.kube.store.etcd.identity import check_owner
from certwright.kube.store.mark import MarkFile
from kube.store.opening import opened
from support.etcd import Etcd
from support.sealed import Keys, seal_with

KEYS = Keys()


class Server:
    """A server with a data directory, which starts and ends."""

    def __init__(self, etcd: Etcd, folder: Path, prefix: str) -> None:
        self.access, self._prefix = Access((etcd.member,), patience_s=60.0), prefix
        self._marks = MarkFile(folder, "etcd")

    async def start(self, owner: str) -> None:
        await check_owner(self.access, self._prefix, owner, self._marks)
        seal = seal_with(KEYS)
        async with opened(self.access, seal=seal, prefix=self._prefix, marks=self._marks):
            pass


@pytest.fixture
def servers(etcd: Etcd, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Server, Server]:
    """Two with directories of their own, on a prefix of the test's own."""
    prefix = f"/owner-{request.node.name}"
    return Server(etcd, tmp_path / "one.mark", prefix), Server(etcd, tmp_path / "two.mark", prefix)


async def test_another_installation_does_not_start_on_a_named_store(servers: tuple[Server, Server]) -> None:
    one, two = servers
    await one.start("blue")
    with pytest.raises(Damaged, match=r"the store of 'blue'.*it is started with --etcd-owner green"):
        await two.start("green")
    with pytest.raises(Damaged, match=r"the store of 'blue'.*it has no --etcd-owner"):
        await two.start("")
    await two.start("blue")


async def test_a_store_is_named_by_its_own_servers_only(servers: tuple[Server, Server]) -> None:
    one, two = servers
    await one.start("")
    with pytest.raises(Damaged, match=r"a store without an owner.*start one of its present"):
        await two.start("blue")
    await two.start("")
    await one.start("blue")


async def test_the_name_is_introduced_server_by_server(
    servers: tuple[Server, Server], caplog: pytest.LogCaptureFixture
) -> None:
    one, two = servers
    await one.start("")
    await two.start("")
    await one.start("blue")
    with caplog.at_level(logging.WARNING):
        await two.start("")
    assert "give this server --etcd-owner blue, too" in caplog.text
    await two.start("blue")


async def test_a_restored_store_has_the_name_of_before(servers: tuple[Server, Server]) -> None:
    one, two = servers
    await one.start("blue")
    async with refilling(one.access, one._prefix, seal_with(KEYS), force=True):
        pass
    await one.start("blue")
    with pytest.raises(Damaged, match="the store of 'blue'"):
        await two.start("green")
