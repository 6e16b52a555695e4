"""The ledger against a CA that enforces limits, week after week on a virtual clock. CERTWRIGHT_SOAK=1 orders
five times as many certificates."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from certwright.acme.ratelimits.published import PRESETS
from support.limited_ca import (
    START,
    Cluster,
    LimitedCa,
    Log,
    Timeline,
    Tokens,
    optimum,
    optimum_of_windows,
    rates_of,
    windows_of,
)

pytestmark = pytest.mark.every(2)

LETS_ENCRYPT = PRESETS["acme-v02.api.letsencrypt.org"]
RATES = rates_of(LETS_ENCRYPT)
DOMAINS = 50 if os.environ.get("CERTWRIGHT_SOAK") else 10
"""Domains with 100 names each. The names of ten already need more than the account may order at first."""
CRASHES = [timedelta(seconds=s) for s in (0.002, 0.05, 0.15, 3, 7, 20, 3600.123, 9999)] + [
    timedelta(hours=h, seconds=h) for h in (5, 20, 47, 60, 100, 150)
]


def order_many(cluster: Cluster, names: int, domains: int) -> None:
    """Certificates for one name each, spread over the domains."""
    for i in range(names):
        since = START - timedelta(hours=1) + timedelta(milliseconds=i)
        cluster.add(f"n{i}.d{i % domains}.com", since=since)


@pytest.mark.parametrize("counts_early", [False, True], ids=["counted when issued", "counted when ordered"])
def test_names_of_many_domains_without_a_refusal_in_the_least_time(*, counts_early: bool) -> None:
    timeline, names = Timeline(), 100 * DOMAINS
    ca = LimitedCa(RATES, counter=Tokens, counts_early=counts_early)
    cluster = Cluster(timeline, ca, LETS_ENCRYPT)
    order_many(cluster, names, DOMAINS)
    timeline.run()
    assert cluster.is_done
    assert len(ca.issued) == names
    assert ca.refusals == []
    least = optimum(RATES, per_domain=100, total=names)
    assert least == timedelta(days=7)
    assert least <= cluster.finished_at - START <= least * 1.05
    # Each name is woken a handful of times only.
    assert cluster.asks < 6 * names


def test_sliding_windows_are_kept_as_well() -> None:
    timeline = Timeline()
    ca = LimitedCa(RATES, counter=Log)
    cluster = Cluster(timeline, ca, windows_of(LETS_ENCRYPT))
    order_many(cluster, 1000, 10)
    timeline.run()
    assert cluster.is_done
    assert ca.refusals == []
    least = optimum_of_windows(RATES, per_domain=100, total=1000)
    assert least <= cluster.finished_at - START <= least * 1.05


def test_a_process_that_crashes_again_and_again_is_never_refused() -> None:
    timeline = Timeline()
    ca = LimitedCa(RATES)
    cluster = Cluster(timeline, ca, LETS_ENCRYPT)
    order_many(cluster, 500, 5)
    for moment in CRASHES:
        timeline.at(START + moment, cluster.crash)
    timeline.run()
    assert cluster.is_done
    assert len(ca.issued) == 500
    assert ca.refusals == []
    assert cluster.finished_at - START <= optimum(RATES, per_domain=100, total=500) * 1.05


def test_another_cluster_with_the_same_domains_is_learned_of() -> None:
    timeline = Timeline()
    ca = LimitedCa(RATES)
    ours = Cluster(timeline, ca, LETS_ENCRYPT, name="ours")
    theirs = Cluster(timeline, ca, LETS_ENCRYPT, name="theirs", account="https://ca.example/acct/2", seed=2)
    for i in range(600):
        ours.add(f"ours{i}.d{i % 10}.com")
    for i in range(300):
        theirs.add(f"theirs{i}.d{i % 10}.com")
    timeline.run()
    assert ours.is_done
    assert theirs.is_done
    # 40 of each domain do not fit into the first burst: each cluster thinks that they are its own to have,
    # and hears of the other by a refusal; not more than once for each order of the other.
    assert 0 < len(ca.refusals) <= 900
    assert ours.refused + theirs.refused == len(ca.refusals)
    least = optimum(RATES, per_domain=90, total=600)
    assert ours.finished_at - START <= least * 1.05
    assert theirs.finished_at - START <= least * 1.05


def test_limits_that_nobody_told_us_of_are_learned() -> None:
    timeline = Timeline()
    ca = LimitedCa({"orders": (20, timedelta(minutes=10))})
    cluster = Cluster(timeline, ca, PRESETS["acme.zerossl.com"])
    order_many(cluster, 200, 5)
    timeline.run()
    assert cluster.is_done
    # The orders that were on their way at first, and then one now and then.
    assert len(ca.refusals) < 200 + 60
    assert cluster.finished_at - START < timedelta(hours=6)


def test_what_is_saved_is_small() -> None:
    timeline = Timeline()
    cluster = Cluster(timeline, LimitedCa(RATES), LETS_ENCRYPT)
    order_many(cluster, 1000, 10)
    timeline.run(START + timedelta(hours=20))
    assert 0 < cluster.saved_bytes < 200_000
