"""The conformance suite's assertions explain themselves, as those of test modules do; and an etcd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
    with running_etcd(tmp_path_factory.mktemp("etcd")) as found:
        yield found
