"""How long many certificates take from a CA with Let's Encrypt's limits, against the least time that these
allow, and what the ledger costs. On a virtual clock: weeks pass in seconds.
"""

from __future__ import annotations

import time
from datetime import timedelta

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

_LETS_ENCRYPT = PRESETS["acme-v02.api.letsencrypt.org"]
_RATES = rates_of(_LETS_ENCRYPT)
_CRASHES = [timedelta(seconds=s) for s in (0.002, 0.05, 0.15, 3, 7, 20, 3600)] + [
    timedelta(hours=h) for h in (5, 20, 47, 60, 100, 150)
]
_NAMES, _DOMAINS = 5000, 50


def main() -> None:
    """Print one line for each way."""
    print(
        f"{_NAMES} certificates for one name each, {_DOMAINS} registered domains, limits of Let's Encrypt\n"
    )
    print("writes: of the ledger's ConfigMap; processor time: of the simulated CA and clock as well\n")
    print("| CA counts by | crashes | 429s | took | of the least | asks each | writes | processor each |")
    print("|---|---|---|---|---|---|---|---|")
    _run("tokens, when issued")
    _run("tokens, when ordered", counts_early=True)
    _run("tokens, when issued", crashes=True)
    _run("sliding windows", windows=True)


def _run(title: str, *, counts_early: bool = False, windows: bool = False, crashes: bool = False) -> None:
    timeline = Timeline()
    ca = LimitedCa(_RATES, counter=Log if windows else Tokens, counts_early=counts_early)
    cluster = Cluster(timeline, ca, windows_of(_LETS_ENCRYPT) if windows else _LETS_ENCRYPT)
    for i in range(_NAMES):
        cluster.add(f"n{i}.d{i % _DOMAINS}.com", since=START + timedelta(milliseconds=i) - timedelta(hours=1))
    for moment in _CRASHES if crashes else ():
        timeline.at(START + moment, cluster.crash)
    began = time.process_time()
    timeline.run()
    cost = (time.process_time() - began) / _NAMES
    least = (optimum_of_windows if windows else optimum)(_RATES, per_domain=_NAMES // _DOMAINS, total=_NAMES)
    took = cluster.finished_at - START
    assert cluster.is_done
    assert len(ca.issued) == _NAMES
    print(
        f"| {title} | {len(_CRASHES) if crashes else 0} | {len(ca.refusals)} | {took} | {took / least:.4f} "
        f"| {cluster.asks / _NAMES:.1f} | {cluster.saves} | {cost * 1e6:.0f} µs |",
        flush=True,
    )


if __name__ == "__main__":
    main()
