"""The picture of `bench/fleet.py`, as SVG without any library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

from bench.fleet_scenario import Scenario, span
from bench.fleet_simulation import Outcome
from bench.svg import text

_WIDTH, _LEFT, _RIGHT, _TOP = 900, 64, 24, 66
_PANEL, _BETWEEN = 118, 44
_COLOURS = ("#cc4c02", "#1f78b4", "#2e8b57")
_BUCKET = 6  # hours in one step of a curve
_TENS = 4  # the scale goes from 1 to 10^4


def _x(share: float) -> float:
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _y(top: float, count: float) -> float:
    """Attempts per hour on a scale of powers of ten; none lies on the ground."""
    return top + _PANEL - (math.log10(count) + 0.15 if count >= 1 else 0) / (_TENS + 0.15) * _PANEL


def _frame(top: float, months: int) -> Iterable[str]:
    for power in range(_TENS + 1):
        y = _y(top, 10**power)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        yield text(_LEFT - 8, y + 4, f"{10**power:,}", size=10, anchor="end", colour="#666")
    for month in range(months + 1):
        x = _x(month / months)
        yield f'<line x1="{x:.1f}" y1="{top + _PANEL}" x2="{x:.1f}" y2="{top + _PANEL + 4}" stroke="#999"/>'
    yield (
        f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_PANEL}" fill="none" '
        'stroke="#999"/>'
    )


def _outages(top: float, scenario: Scenario) -> Iterable[str]:
    duration = span(scenario.lasts)
    for outage in scenario.outages:
        x = _x(span(outage.at) / duration)
        width = max(_x((span(outage.at) + span(outage.lasts)) / duration) - x, 1)
        yield f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_PANEL}" fill="#f3dede"/>'


def _curve(top: float, outcome: Outcome, colour: str) -> str:
    """The worst hour at one issuer in each step of time, of attempts in vain."""
    worst = [max(hour) for hour in zip(*outcome.in_vain, strict=True)]
    steps = [max(worst[at : at + _BUCKET]) for at in range(0, len(worst), _BUCKET)]
    points = [f"M{_LEFT} {top + _PANEL}"]
    for number, count in enumerate(steps):
        points.append(f"V{_y(top, count):.1f}H{_x(min((number + 1) * _BUCKET / len(worst), 1)):.1f}")
    return f'<path d="{"".join(points)}V{top + _PANEL}Z" fill="{colour}" stroke="none"/>'


def _panel(top: float, outcome: Outcome, scenario: Scenario, colour: str) -> Iterable[str]:
    yield from _outages(top, scenario)
    yield from _frame(top, max(round(span(scenario.lasts) / timedelta(days=30.4)), 1))
    yield _curve(top, outcome, colour)
    yield text(_LEFT, top - 8, outcome.policy.name, size=13, colour=colour)
    yield text(
        _WIDTH - _RIGHT,
        top - 8,
        f"{outcome.failed:,} in vain, at most {outcome.peak_in_vain:,} an hour; "
        f"{outcome.avoidable:,} certificates expired that need not have",
        size=11,
        anchor="end",
        colour="#666",
    )


def draw(path: Path, outcomes: Sequence[Outcome], scenario: Scenario) -> None:
    """Write the picture: one panel for each policy, over one time."""
    height = _TOP + len(outcomes) * (_PANEL + _BETWEEN) + 10
    title = (
        f"{scenario.certificates:,} certificates, {scenario.issuers} issuers, a year: "
        "attempts in vain per hour at the issuer that got most"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{title}, for three policies">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        text(_LEFT, 24, title, size=15),
    ]
    for number, outcome in enumerate(outcomes):
        top = _TOP + number * (_PANEL + _BETWEEN)
        parts += _panel(top, outcome, scenario, _COLOURS[number % len(_COLOURS)])
    note = "Shaded: an issuer is out. The scale is one of powers of ten; marks below are months."
    parts.append(text(_LEFT, height - 14, note, size=11, colour="#666"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>", ""]))
