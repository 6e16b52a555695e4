"""etcd's database against its quota: seen before it is full, and named when it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from certwright.app.stores import check_row
from certwright.kube.apiserver.health import Health
from certwright.kube.store.contract import Key, Store, Unavailable
from certwright.kube.store.etcd.store import open_etcd
from conformance.store_words import BUCKET, holding
from kube.store.test_etcd import at
from support.etcd import Etcd, running_etcd
from support.waiting import until

MIB = 1 << 20


async def fill(store: Store) -> None:
    """Write 10 MiB."""
    for number in range(10):
        await store.put(Key(BUCKET, "", str(number)), holding(os.urandom(MIB)))


async def test_an_etcd_that_is_full_is_seen_before_and_named_when_it_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = (f"--quota-backend-bytes={4 * MIB}",)
    with running_etcd(tmp_path, flags=flags) as etcd:
        store = await open_etcd(at(etcd.member), compact_every_s=0, quota_bytes=4 * MIB, check=check_row)
        await until(lambda: store.usage is not None)
        assert store.usage is not None
        assert (store.usage.quota, store.usage.warning) == (4 * MIB, "")
        with pytest.raises(Unavailable, match=r"is full .*raise its --quota-backend-bytes"):
            await fill(store)
        await store._quota.measure()
        expected = "of the 4 MB that its quota allows; at the quota it refuses every write: defragment"
        assert expected in store.usage.warning
        assert expected in caplog.text
        answer = await Health(store).respond("/readyz", "verbose")
        assert answer is not None
        assert f"warn: {store.usage.warning}" in answer.body.decode()
        await store.close()


async def test_the_quota_that_etcd_does_not_report_is_a_setting(etcd: Etcd) -> None:
    store = await open_etcd(at(etcd.member), prefix="/quota", compact_every_s=0, quota_bytes=1)
    await until(lambda: store.usage is not None)
    assert store.usage is not None
    assert store.usage.size >= store.usage.in_use > 0
    assert store.usage.warning
    await store.close()
