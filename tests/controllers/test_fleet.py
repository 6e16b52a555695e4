"""Fleets under three policies: what `bench/fleet.py` does with 100,000 certificates, with a few."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench.fleet import SCENARIOS
from bench.fleet_chart import draw
from bench.fleet_scenario import Broken, Kind, Limit, Outage, Scenario, read, span
from bench.fleet_simulation import DESIGN, FIXED, OURS, POLICIES, Fleet, Outcome


def run(scenario: Scenario) -> dict[str, Outcome]:
    return {policy.name: Fleet(scenario, policy).run() for policy in POLICIES}


SIX_DAYS = Scenario(
    certificates=300,
    issuers=1,
    lasts="20d",
    kinds=[Kind(share=1, lives="160h")],
    outages=[Outage(issuer=0, at="8d", lasts="40h")],
)


def test_none_expires_in_forty_hours_without_an_issuer() -> None:
    outcome = run(SIX_DAYS)
    assert outcome[OURS.name].expired == 0
    assert outcome[OURS.name].peak_in_vain <= 12
    assert outcome[OURS.name].attempts < outcome[DESIGN.name].attempts < outcome[FIXED.name].attempts
    assert outcome[DESIGN.name].avoidable > 0


def test_restarts_change_nothing_about_it() -> None:
    often = msgspec.structs.replace(SIX_DAYS, restarts_every="5h")
    still, restarted = Fleet(SIX_DAYS, OURS).run(), Fleet(often, OURS).run()
    assert restarted.expired == 0
    assert restarted.peak_in_vain <= 12
    assert restarted.failed <= still.failed + 12


@pytest.mark.parametrize("retry_after", ["", "2h"])
def test_short_lives_are_saved_where_any_policy_saves_them(retry_after: str) -> None:
    scenario = Scenario(
        certificates=200,
        issuers=2,
        lasts="4d",
        kinds=[Kind(share=1, lives="24h")],
        outages=[Outage(issuer=0, at="1d", lasts="5h", retry_after=retry_after)],
        restarts_every="7h",
    )
    outcome = run(scenario)
    assert outcome[OURS.name].avoidable == 0
    assert outcome[OURS.name].attempts < outcome[DESIGN.name].attempts


def test_an_issuer_that_grants_few_is_not_asked_in_vain_for_long() -> None:
    scenario = Scenario(
        certificates=1000,
        issuers=1,
        lasts="60d",
        kinds=[Kind(share=1, lives="90d")],
        together=0.5,
        limits=[Limit(issuer=0, grants=50, per="3h")],
        broken=Broken(share=0.01, lasts="2d"),
    )
    outcome = run(scenario)
    assert outcome[OURS.name].avoidable == 0
    assert outcome[OURS.name].failed < outcome[DESIGN.name].failed


def test_the_same_scenario_gives_the_same_figures() -> None:
    first, second = Fleet(SIX_DAYS, OURS).run(), Fleet(SIX_DAYS, OURS).run()
    assert first == second


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_file_can_be_read(path: Path) -> None:
    scenario = read(path)
    assert scenario.certificates > 0
    assert sum(kind.share for kind in scenario.kinds) == pytest.approx(1)
    assert all(outage.issuer < scenario.issuers for outage in scenario.outages)


def test_a_wrong_duration_is_named() -> None:
    with pytest.raises(ValueError, match="12 o'clock"):
        span("12 o'clock")


def test_the_picture_shows_each_policy(tmp_path: Path) -> None:
    path = tmp_path / "fleet.svg"
    draw(path, list(run(SIX_DAYS).values()), SIX_DAYS)
    text = path.read_text()
    assert all(policy.name in text for policy in POLICIES)
