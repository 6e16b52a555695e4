"""The pictures of `bench/workloads.py`, as SVG without any library: a bar for each figure, and its goal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.svg import text

_WIDTH, _LEFT, _RIGHT, _TOP, _LINE, _BAR = 900, 360, 120, 54, 20, 12
_KEPT, _MISSED, _FREE = "#2e8b57", "#cc4c02", "#1f78b4"


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure, and the most that it may be; None where there is no limit."""

    name: str
    value: float
    unit: str
    goal: float | None = None


def draw(path: Path, name: str, bars: Sequence[Bar]) -> None:
    """Write the picture. A bar is as long as its figure is in parts of its goal, or of the largest figure
    without one; a bar of twice the goal fills the width, and longer ones end there."""
    height = _TOP + len(bars) * _LINE + 30
    title = f"{name}: figures, in parts of what is allowed"
    goal = _x(1.0)
    largest = max((bar.value for bar in bars if bar.goal is None), default=1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{title}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        text(_LEFT - 340, 24, title, size=15),
        f'<line x1="{goal}" y1="{_TOP - 10}" x2="{goal}" y2="{height - 26}" stroke="#999" '
        'stroke-dasharray="4 3"/>',
        text(goal, _TOP - 14, "allowed", size=10, anchor="middle", colour="#666"),
    ]
    for number, bar in enumerate(bars):
        parts += _row(_TOP + number * _LINE, bar, largest)
    parts.append(text(_LEFT - 340, height - 8, "Blue: no limit is set; beside the largest of them.", size=10))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>", ""]))


def _row(top: float, bar: Bar, largest: float) -> Iterable[str]:
    share = bar.value / (bar.goal or largest)
    colour = _FREE if bar.goal is None else _KEPT if share <= 1 else _MISSED
    width = max(_x(min(max(share, 0.0), 2.0)) - _LEFT, 1)
    yield text(_LEFT - 8, top + 10, bar.name, size=11, anchor="end")
    yield f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>'
    limit = f" of {bar.goal:g}" if bar.goal is not None else ""
    yield text(_LEFT + width + 6, top + 10, f"{bar.value:.1f}{limit} {bar.unit}".rstrip(), size=11)


def _x(share: float) -> float:
    return _LEFT + share / 2 * (_WIDTH - _LEFT - _RIGHT)
