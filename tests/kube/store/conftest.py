"""The conformance suite's assertions explain themselves, as those of test modules do; and an etcd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from certwright.kube.store.etcd.client import EtcdClient
from certwright.kube.store.etcd.http2 import CallFailed, Status
from certwright.kube.store.etcd.messages import TXN
from support.etcd import Etcd, running_etcd

pytest.register_assert_rewrite(
    "conformance.check_store",
    "conformance.check_store_listing",
    "conformance.check_store_watching",
    "conformance.check_store_writing",
)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd for all tests of a process: each uses a prefix of its own."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def lose_an_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when this is called, etcd carries the next transaction out, and its answer is lost."""
    lost = 0
    ask = EtcdClient._call_member

    async def losing(client: EtcdClient, member: str, method: Any, *rest: Any) -> Any:
        nonlocal lost
        answer = await ask(client, member, method, *rest)
        if method is TXN and lost:
            lost -= 1
            raise CallFailed(Status.UNAVAILABLE, "the connection is lost")
        return answer

    def lose() -> None:
        nonlocal lost
        lost += 1

    monkeypatch.setattr(EtcdClient, "_call_member", losing)
    return lose
