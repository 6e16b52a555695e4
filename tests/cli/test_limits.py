"""`certwright limits`: what is told of a ConfigMap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from certwright.diagnosis.limits import Account, UnreadableLedger, read
from certwright.kit.rate_limit import Bucket, Rate, micros
from certwright.resources import names
from cli.calls import Cli

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVER = "https://ca.example/directory"
ACCOUNT = "https://ca.example/acct/1"
ACCOUNTS = {("ClusterIssuer", "", "le"): Account(SERVER, ACCOUNT)}


def kept(buckets: dict[str, Bucket], **more: Any) -> dict[str, Any]:
    """A ConfigMap as the controllers write it."""
    rules = {
        "newOrders": {"count": 300, "windowSeconds": 10800.0, "refills": True, "overrides": {}},
        "certificatesPerDomain": {
            "count": 50,
            "windowSeconds": 604800.0,
            "refills": True,
            "overrides": {"big.com": 99},
        },
    }
    ledger = {"buckets": {key: bucket.numbers() for key, bucket in buckets.items()}, **more}
    return {
        "metadata": {"name": "acme-limits-x", "namespace": "kube-system"},
        "data": {
            "server": SERVER,
            "limits.json": msgspec.json.encode({"name": "CA", "limits": rules}).decode(),
            "state.json": msgspec.json.encode({"revision": 1, "ledger": ledger}).decode(),
        },
    }


def order(namespace: str, *names: str, url: str = "made", days: float = 1) -> dict[str, Any]:
    """An Order as JSON."""
    return {
        "metadata": {"namespace": namespace, "creationTimestamp": (NOW - timedelta(days=days)).isoformat()},
        "spec": {"issuerRef": {"kind": "ClusterIssuer", "name": "le"}, "dnsNames": list(names)},
        "status": {"url": url},
    }


def used(rate: Rate, many: int, **more: Any) -> Bucket:
    """A bucket from which so many have been taken just now."""
    bucket = Bucket(**more)
    for _ in range(many):
        bucket.spend(rate, micros(NOW))
    return bucket


def test_a_full_domain_says_when_the_next_can_go_and_who_uses_it() -> None:
    week = Rate(50, timedelta(days=7))
    content = kept(
        {
            "certificatesPerDomain/example.com": used(week, 50),
            "certificatesPerDomain/big.com": used(Rate(99, week.window), 1),
        },
        waiting={"certificatesPerDomain/example.com": 2},
    )
    orders = [
        order("shop", "a.example.com"),
        order("shop", "b.example.com"),
        order("web", "example.com"),
        order("web", "notexample.com"),
        order("web", "c.example.com", url=""),
        order("web", "d.example.com", days=8),
    ]
    rows = {row.whose: row for row in read(content, orders, ACCOUNTS, NOW)}
    full = rows["example.com"]
    assert (full.used, full.rate.count, full.waiting, full.is_used_up) == (50, 50, 2, True)
    assert full.free_at == NOW + 3 * timedelta(minutes=201.6)
    assert full.used_by == {"shop": 2, "web": 1}
    assert (rows["big.com"].used, rows["big.com"].rate.count) == (1, 99)


def test_what_is_as_good_as_new_is_not_told() -> None:
    content = kept({f"newOrders/{ACCOUNT}": Bucket(full_at=micros(NOW) - 1)})
    assert list(read(content, [], ACCOUNTS, NOW)) == []


def test_a_limit_that_was_learned_is_told() -> None:
    content = kept(
        {f"refused/{ACCOUNT}": Bucket(closed_until=micros(NOW) + 60_000_000)},
        paces={f"refused/{ACCOUNT}": 4},
    )
    (row,) = read(content, [order("shop", "a.example.com", days=0)], ACCOUNTS, NOW)
    assert (row.limit, row.free_at) == ("refused", NOW + timedelta(minutes=1))


def test_a_config_map_that_somebody_has_changed_is_named() -> None:
    broken = kept({})
    broken["data"]["state.json"] = "{"
    with pytest.raises(UnreadableLedger, match=r"kube-system/acme-limits-x cannot be read .*delete it"):
        list(read(broken, [], ACCOUNTS, NOW))


def test_a_learned_limit_names_the_order_and_counts_those_that_wait() -> None:
    content = kept(
        {
            f"refused/{ACCOUNT}": Bucket(closed_until=micros(NOW) + 60_000_000),
            "refused/uid-1": Bucket(closed_until=micros(NOW) + 600_000_000),
        },
        waiting={f"refused/{ACCOUNT}": 1},
    )
    orders = [order("shop", f"{letter}.example.com", url="", days=0) for letter in "abc"]
    for number, manifest in enumerate(orders):
        manifest["metadata"] |= {"uid": f"uid-{number}", "name": f"web-{number}"}
    rows = {row.whose: row for row in read(content, orders, ACCOUNTS, NOW)}
    assert rows[ACCOUNT].waiting == 3
    assert rows["Order shop/web-1"].waiting == 1
    assert all(row.is_learned for row in rows.values())


@pytest.mark.parametrize("flags", [(), ("--cluster-resource-namespace", "NS")], ids=["elsewhere", "named"])
def test_a_ledger_is_read_from_the_namespace_of_the_controllers_only(
    cli: Cli, namespace: str, flags: tuple[str, ...]
) -> None:
    manifest = (
        "apiVersion: v1\nkind: ConfigMap\n"
        f'metadata: {{name: acme-limits-x, labels: {{{names.ACME_LIMITS_LABEL}: "true"}}}}\n'
        "data: {limits.json: nonsense}\n"
    )
    assert cli("apply", "-f", "-", "-n", namespace, stdin=manifest).status == 0
    outcome = cli("limits", *(flag.replace("NS", namespace) for flag in flags))
    if flags:
        assert (outcome.status, f"{namespace}/acme-limits-x cannot be read" in outcome.err) == (1, True)
    else:
        assert (outcome.status, outcome.err) == (0, "")
