"""The whole may only become smaller, or larger for a user: see size.toml."""

from __future__ import annotations

from house.size import figures, weigh


def test_no_package_is_larger_than_its_figure() -> None:
    allowed = figures()
    larger = {
        name: (weight, allowed.get(name))
        for name, weight in weigh().items()
        if name not in allowed or any(now > most for now, most in zip(weight, allowed[name], strict=True))
    }
    assert not larger, "raise the figure in tests/house/size.toml, and say there which user needs it"
