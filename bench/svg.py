"""What the pictures of the benchmarks share: text, as SVG without any library."""

from __future__ import annotations

from typing import Final

FONT: Final = 'font-family="system-ui, sans-serif"'


def text(
    x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", colour: str = "#333"
) -> str:
    """Words at a place; `anchor` says which part of them is there (SVG's `text-anchor`)."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" {FONT}>'
        f"{words}</text>"
    )
