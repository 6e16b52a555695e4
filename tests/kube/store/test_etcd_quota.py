"""etcd's database against its quota: seen before it is full, and named when it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from certwright.app.stores import check_row
from certwright.kube.apiserver.paths import Health
from certwright.kube.store.contract import Full, Key, Store
from conformance.store_words import BUCKET, holding
from kube.store.opening import opened
from kube.store.test_etcd import at
from support.etcd import Etcd, running_cluster, running_etcd
from support.waiting import until

MIB = 1 << 20


KEY = Key(BUCKET, "", "a")


async def fill(store: Store, names: Iterable[str]) -> None:
    """Write a MiB to each."""
    for name in names:
        await store.put(Key(BUCKET, "", name), holding(os.urandom(MIB)))


def disarm(etcd: Etcd) -> None:
    """What `etcdctl alarm disarm` does."""
    for alarm in etcd.maintain("alarm", action="GET")["alarms"]:
        etcd.maintain("alarm", action="DEACTIVATE", **alarm)


async def test_an_etcd_that_is_full_is_seen_before_and_named_when_it_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = (f"--quota-backend-bytes={4 * MIB}",)
    with running_etcd(tmp_path, flags=flags) as etcd:
        async with opened(at(etcd.member), quota_bytes=4 * MIB, check=check_row) as store:
            await until(lambda: store.usage is not None)
            assert store.usage is not None
            assert (store.usage.quota, store.usage.warning) == (4 * MIB, "")
            with pytest.raises(Full, match=r"is full .*raise its --quota-backend-bytes"):
                await fill(store, map(str, range(10)))
            # Before the next measurement.
            assert "NOSPACE alarm is active" in store.usage.warning
            assert "NOSPACE alarm is active" in caplog.text
            await store._quota.measure()
            assert "NOSPACE alarm is active" in store.usage.warning
            expected = "of the 4 MB that its quota allows; at the quota of one member all refuse writes"
            assert expected in store.usage.warning
            assert expected in caplog.text
            answer = await Health(store).respond("/readyz", "verbose")
            assert answer is not None
            assert f"warn: {store.usage.warning}" in answer.body.decode()


async def test_a_full_etcd_with_another_quota_than_the_flag_is_named(tmp_path: Path) -> None:
    with running_etcd(tmp_path, flags=(f"--quota-backend-bytes={4 * MIB}",)) as etcd:
        async with opened(at(etcd.member)) as store:
            with pytest.raises(Full):
                await fill(store, map(str, range(10)))
            await store._quota.measure()
            assert store.usage is not None
            assert "--etcd-quota-backend-bytes here is wrong" in store.usage.warning


async def test_a_full_etcd_is_read_and_compacted_and_takes_writes_once_it_has_room(tmp_path: Path) -> None:
    with running_etcd(tmp_path, flags=(f"--quota-backend-bytes={4 * MIB}",)) as etcd:
        async with opened(at(etcd.member), quota_bytes=4 * MIB) as store:
            with pytest.raises(Full):
                await fill(store, 10 * [KEY.name])
            before = await store.get(KEY)
            assert before is not None
            assert await store._compaction.look() == 0
            assert await store._compaction.look() == store.revision
            # etcd compacts in the background.
            async with asyncio.timeout(60):
                while store.usage is None or store.usage.in_use > 2 * MIB:
                    await asyncio.sleep(0.02)
                    await store._quota.measure()
            await asyncio.to_thread(etcd.maintain, "defragment")
            with pytest.raises(Full):
                await store.put(KEY, holding(b"x"))
            await asyncio.to_thread(disarm, etcd)
            assert (await store.put(KEY, holding(b"x"), expect=before.revision)).body == b"x"
            await store._quota.measure()
            assert store.usage is not None
            assert store.usage.warning == ""


async def test_the_quota_that_etcd_does_not_report_is_a_setting(etcd: Etcd) -> None:
    async with opened(at(etcd.member), prefix="/quota", quota_bytes=1) as store:
        await until(lambda: store.usage is not None)
        assert store.usage is not None
        assert store.usage.size >= store.usage.in_use > 0
        assert store.usage.warning


async def test_the_member_that_is_nearest_to_its_quota_is_reported(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as members:
        async with opened(at(*(etcd.member for etcd in members))) as store:
            await fill(store, 6 * [KEY.name])
            await store.compact(store.revision)
            # Two of three have committed the writes; this one may be behind.
            async with asyncio.timeout(60):
                while int(members[0].maintain("status")["header"]["revision"]) < store.revision:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await asyncio.to_thread(members[0].maintain, "defragment")
            smallest = int(members[0].maintain("status")["dbSize"])
            await store._quota.measure()
            assert store.usage is not None
            assert store.usage.size > 2 * smallest
            for etcd in members[1:]:
                etcd.pause()
            await store._quota.measure()
            assert store.usage.size < 2 * smallest
