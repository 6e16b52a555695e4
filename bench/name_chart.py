"""The picture of `bench/generate_name.py`, as SVG without any library."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from bench.name_conflicts import ATTEMPTS, GOAL, GOAL_NAMES, chance
from bench.svg import FONT, text

_WIDTH, _HEIGHT = 860, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 150, 64, 62
_X, _Y = (2.0, 7.0), (-16.0, 0.0)  # powers of ten
_COLOURS = (
    *("#8c2d04", "#cc4c02", "#ec7014", "#d9a400", "#78a22f"),
    *("#2e8b57", "#1f78b4", "#08306b", "#6a51a3"),
)

_text = partial(text, anchor="middle")


def _x(names: float) -> float:
    return _LEFT + (math.log10(names) - _X[0]) / (_X[1] - _X[0]) * (_WIDTH - _LEFT - _RIGHT)


def _y(probability: float) -> float:
    return _TOP + (_Y[1] - math.log10(probability)) / (_Y[1] - _Y[0]) * (_HEIGHT - _TOP - _BOTTOM)


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def _power(exponent: int) -> str:
    return f'10<tspan dy="-5" font-size="9">{exponent}</tspan>'


def _axes() -> Iterable[str]:
    grid = 'stroke="#e4e4e4"'
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for exponent in range(int(_X[0]), int(_X[1]) + 1):
        x = _x(10**exponent)
        yield _line(x, _TOP, x, bottom, grid)
        yield _text(x, bottom + 20, f"{10**exponent:,}")
    for exponent in range(int(_Y[0]), 1, 2):
        y = _y(10.0**exponent)
        yield _line(_LEFT, y, right, y, grid)
        yield _text(_LEFT - 12, y + 4, _power(exponent) if exponent else "1", anchor="end")
    place = f'x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}"'
    yield f'<rect {place} fill="none" stroke="#999"/>'
    yield _text((_LEFT + right) / 2, _HEIGHT - 18, "names generated with one prefix")
    yield (
        f'<text transform="translate(24 {(_TOP + bottom) / 2:.0f}) rotate(-90)" font-size="12" '
        f'text-anchor="middle" fill="#333" {FONT}>chance that at least one create fails</text>'
    )


def _curve(attempts: int, colour: str) -> Iterable[str]:
    points = [(10 ** (_X[0] + step / 40), 0.0) for step in range(round((_X[1] - _X[0]) * 40) + 1)]
    placed = [(names, chance(attempts, names)) for names, _ in points]
    seen = [(_x(names), _y(probability)) for names, probability in placed if probability >= 10 ** _Y[0]]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in seen)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _legend(attempts: int, colour: str) -> Iterable[str]:
    x, y = _WIDTH - _RIGHT + 14, _TOP + 26 + 22 * attempts
    words = f"{attempts - 1} {'retry' if attempts == 2 else 'retries'}"
    bold = " (KEP-4420)" if attempts == 8 else ""
    yield _line(x, y - 4, x + 18, y - 4, f'stroke="{colour}" stroke-width="3"')
    yield _text(x + 24, y, words + bold, anchor="start", size=11)


def _goal() -> Iterable[str]:
    x, y = _x(GOAL_NAMES), _y(GOAL)
    dashes = 'stroke="#c00" stroke-width="1.5" stroke-dasharray="6 4"'
    yield _line(_LEFT, y, _WIDTH - _RIGHT, y, dashes)
    yield _line(x, _TOP, x, _HEIGHT - _BOTTOM, dashes)
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="#c00" stroke-width="2"/>'
    yield _text(_LEFT + 8, y - 7, "goal: below 0.1 % at one million", anchor="start", colour="#c00")


def draw(path: Path, simulated: Iterable[tuple[int, int, float]], caption: str) -> None:
    """Write the picture; `simulated` are (names, attempts, share of runs with a failure)."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="Chance of a conflict between generated names, by number of names and of retries">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _text(_LEFT, 26, "generateName: chance of a conflict (27⁵ suffixes)", size=16, anchor="start"),
        _text(_LEFT, 46, caption, size=11, anchor="start", colour="#666"),
        *_axes(),
    ]
    for attempts in ATTEMPTS:
        parts += _curve(attempts, _COLOURS[attempts - 1])
        parts += _legend(attempts, _COLOURS[attempts - 1])
    parts += _goal()
    for names, attempts, share in simulated:
        if share > 0:
            place = f'cx="{_x(names):.1f}" cy="{_y(share):.1f}"'
            parts.append(f'<circle {place} r="4" fill="{_COLOURS[attempts - 1]}" stroke="#fff"/>')
    x, y = _WIDTH - _RIGHT + 23, _TOP + 26 + 22 * 10
    parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="#777"/>')
    parts.append(_text(x + 15, y, "simulated", anchor="start", size=11))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>", ""]))
