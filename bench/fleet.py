"""A fleet for a year, on a clock of its own: what failing issuers get to bear, and which certificates end.

`FLEET_SCENARIO` names another file of bench/scenarios/ (without .yaml); only `year` draws docs/img/fleet.svg.
docs/backoff.md says what it means.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from bench.fleet_chart import draw
from bench.fleet_scenario import read, span
from bench.fleet_simulation import POLICIES, Fleet, Outcome
from bench.rig import table

SCENARIOS = Path(__file__).parent / "scenarios"
PICTURE = Path(__file__).parent.parent / "docs" / "img" / "fleet.svg"
_DRAWN = "year"


def main() -> None:
    """Run the scenario under each policy, print the table and draw the picture."""
    name = os.environ.get("FLEET_SCENARIO", _DRAWN)
    scenario = read(SCENARIOS / f"{name}.yaml")
    begun, outcomes = time.process_time(), []
    for policy in POLICIES:
        outcomes.append(Fleet(scenario, policy).run())
    took = time.process_time() - begun
    events = sum(outcome.events for outcome in outcomes)
    days = span(scenario.lasts) / timedelta(days=1)
    print(
        f"{scenario.certificates:,} certificates, {scenario.issuers} issuers, {days:.0f} days: "
        f"{events:,} events in {took:.0f} s of processor time.\n"
    )
    _print(outcomes)
    if name == _DRAWN:
        draw(PICTURE, outcomes, scenario)


def _print(outcomes: list[Outcome]) -> None:
    rows = []
    for outcome in outcomes:
        rows.append(
            [
                outcome.policy.name,
                f"{outcome.attempts:,}",
                f"{outcome.failed:,}",
                f"{outcome.peak_while_out:,}",
                f"{outcome.peak_in_vain:,}",
                f"{outcome.expired:,}",
                f"{outcome.avoidable:,}",
                f"{outcome.probes:,}",
                str(outcome.slowest_return).partition(".")[0] if outcome.policy.sees else "-",
            ]
        )
    table(
        [
            "policy",
            "attempts at the issuers",
            "in vain",
            "in vain at one issuer in an hour: most while out",
            "most at all",
            "expired",
            "of these avoidable",
            "probes",
            "from the end of an outage to the first certificate, at most",
        ],
        rows,
    )


if __name__ == "__main__":
    main()
